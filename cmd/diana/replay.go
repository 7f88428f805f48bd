// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/diana-limiter/diana/cmd/diana/internal/accesslog"
	"github.com/diana-limiter/diana/cmd/diana/internal/trial"
	"github.com/diana-limiter/diana/config"
)

// replayCommand tries rules on what has been, or on what a script says.
type replayCommand struct {
	Config  string   `placeholder:"FILE" help:"Configuration file. Default: for logs diana.yaml, or a demonstration where there is none; for a .replay file those that it names."`
	Against string   `placeholder:"FILE" help:"Another configuration: tells who is refused by one of them and not by the other."`
	JSON    bool     `name:"json" help:"Print the result as JSON."`
	Files   []string `arg:"" name:"file" help:"Access logs, or .replay files; - is standard input."`
}

// Help is the end of what --help prints.
func (replayCommand) Help() string {
	return `Logs are in the combined form of nginx and Apache, JSON lines, or what diana serve logs, compressed by gzip or not; several are merged by time. Requests are judged at the times in the log, as by one gateway that has the whole of each limit, and nobody waits. Nothing is sent, no Redis and no configuration centre is asked. The exit status is 1 if a file cannot be read, if logs hold no request, or if a row of a .replay file fails.`
}

// Run plays logs, or scripts.
func (c *replayCommand) Run(ctx context.Context, o *output) error {
	if err := named(c.Files...); err != nil {
		return err
	}
	isScript := func(file string) bool { return filepath.Ext(file) == ".replay" }
	switch {
	case !slices.ContainsFunc(c.Files, isScript):
		return c.playLogs(ctx, o)
	case slices.ContainsFunc(c.Files, func(file string) bool { return !isScript(file) }):
		return usagef("logs and .replay files, expected either")
	case c.Against != "" || c.JSON:
		return usagef("--against and --json are for logs")
	}
	return c.playScripts(o)
}

// playLogs plays access logs to one configuration or two.
func (c *replayCommand) playLogs(ctx context.Context, o *output) error {
	configs, err := c.configs(o)
	if err != nil {
		return err
	}
	var headers []string
	var counts []*trial.Count
	for _, loaded := range configs {
		count, err := trial.NewCount(loaded, vocabulary())
		if err != nil {
			return o.faults(settings{loaded.Source}, err)
		}
		counts = append(counts, count)
		headers = append(headers, trial.Headers(loaded)...)
	}
	names := accesslog.NewNames(headers)
	p := newProgress(o.err)
	broken := 0
	logs, err := accesslog.Open(c.Files, os.Stdin, names, func(b accesslog.Broken) {
		if broken++; broken <= mostBroken {
			p.clear()
			o.complainf("%s\n", legible(b.String()))
		}
	})
	if err != nil {
		return err
	}
	defer logs.Close()
	comparison := trial.NewComparison(names, counts...)
	for n := 0; ; n++ {
		if n%4096 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.show(logs, n)
		}
		e := logs.Next()
		if e == nil {
			break
		}
		if _, err := comparison.Play(e); err != nil {
			return err
		}
	}
	p.clear()
	if broken > mostBroken {
		o.complainf("and %d lines more that are not understood\n", broken-mostBroken)
	}
	return c.tell(o, comparison.Report(logs.Files))
}

// mostBroken is how many lines are shown that are not understood.
const mostBroken = 5

// configs returns what logs are played to.
func (c *replayCommand) configs(o *output) ([]*config.Config, error) {
	s := chosen(c.Config)
	first, err := s.load()
	if err != nil {
		return nil, o.faults(s, err)
	}
	both := []*config.Config{first}
	if c.Against != "" {
		second, err := o.load(c.Against)
		if err != nil {
			return nil, err
		}
		first, second = o.sameSettings(first, second)
		both = []*config.Config{first, second}
	}
	for _, loaded := range both {
		if loaded.Remote != nil {
			o.complainf("diana: the configuration centre of %s is not asked, these are its local limits\n", loaded.Source)
		}
	}
	return both, nil
}

// tell prints what has come out, and what could not be read.
func (c *replayCommand) tell(o *output, r *trial.Report) (err error) {
	for _, f := range r.Files {
		if f.Error != "" {
			o.complainf("%s: %s\n", f.Name, f.Error)
			err = errReported
		}
	}
	if r.Requests == 0 {
		o.complainf("diana: there is no request in these logs\n")
		return errReported
	}
	if !c.JSON {
		o.printf("%s", reportText(r))
		return err
	}
	encoder := json.NewEncoder(o.out)
	encoder.SetEscapeHTML(false) // no browser takes this for HTML
	encoder.SetIndent("", "  ")
	if failed := encoder.Encode(r); failed != nil {
		return failed
	}
	return err
}
