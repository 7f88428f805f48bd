// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

// replayCommand evaluates the requests of access logs.
type replayCommand struct {
	Config  string   `placeholder:"FILE" help:"Configuration file. Default: diana.yaml, or a demonstration if there is none."`
	Against string   `placeholder:"FILE" help:"Another configuration. Print which actors only one of the two refuses."`
	Servers int      `placeholder:"N" help:"Model the upstream of rules of adaptive concurrency as N servers behind one queue, which refused requests do not burden."`
	JSON    bool     `name:"json" help:"Print the result as JSON."`
	Files   []string `arg:"" name:"file" help:"Access logs; - is standard input."`
}

// Help is the end of what --help prints.
func (replayCommand) Help() string {
	return `A log has the combined form of nginx and Apache, JSON lines, or the lines of diana serve. It may be compressed by gzip. Diana merges several logs by time. It evaluates each request at its time in the log, as one gateway with the whole of each limit would. No request waits. Diana sends nothing, and asks neither Redis nor a configuration centre. The exit status is 1 if a file cannot be read or if the logs have no request.`
}

// Run evaluates the requests of access logs under one configuration or two.
func (c *replayCommand) Run(ctx context.Context, o *command.Output) error {
	if err := command.Named(c.Files...); err != nil {
		return err
	}
	for _, file := range c.Files {
		if filepath.Ext(file) == ".replay" {
			return command.Usagef("%s is a test script, expected access logs: run it with 'diana test %[1]s'", file)
		}
	}
	configs, err := c.configs(o)
	if err != nil {
		return err
	}
	var headers []string
	var counts []*simulate.Count
	for _, loaded := range configs {
		count, err := simulate.NewCount(loaded, command.Vocabulary())
		if err != nil {
			return o.Faults(command.Settings{File: loaded.Source}, err)
		}
		if c.Servers > 0 {
			count.Model(c.Servers)
		}
		counts = append(counts, count)
		headers = slices.AppendSeq(headers, maps.Keys(plan.Headers(loaded.Limits, &loaded.Identity)))
	}
	names := weblog.NewNames(headers)
	p := newProgress(o.Err)
	broken := 0
	logs, err := weblog.Open(c.Files, os.Stdin, names, func(b weblog.Broken) {
		if broken++; broken <= mostBroken {
			p.clear()
			o.Complainf("%s\n", command.Legible(b.String()))
		}
	})
	if err != nil {
		return err
	}
	defer logs.Close()
	comparison := simulate.NewComparison(names, counts...)
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
		o.Complainf("and %d more lines that could not be read\n", broken-mostBroken)
	}
	if why := comparison.Unmeasured(); why != "" {
		o.Complainf("diana: %s\n", why)
		return command.ErrReported
	}
	return c.print(o, comparison.Report(logs.Files))
}

// mostBroken is how many unreadable lines are printed.
const mostBroken = 5

// configs returns the configurations to evaluate the requests under.
func (c *replayCommand) configs(o *command.Output) ([]*config.Config, error) {
	s := command.Chosen(c.Config)
	first, err := s.Load(o)
	if err != nil {
		return nil, err
	}
	both := []*config.Config{first}
	if c.Against != "" {
		second, err := command.Settings{File: c.Against}.Load(o)
		if err != nil {
			return nil, err
		}
		first, second = sameSettings(o, first, second)
		both = []*config.Config{first, second}
	}
	for _, loaded := range both {
		if loaded.Remote != nil {
			o.Complainf("diana: the configuration centre of %s is not asked; these are the local limits\n", loaded.Source)
		}
	}
	return both, nil
}

// print prints the result, and which files could not be read.
func (c *replayCommand) print(o *command.Output, r *simulate.Report) (err error) {
	for _, f := range r.Files {
		if f.Error != "" {
			o.Complainf("%s: %s\n", f.Name, f.Error)
			err = command.ErrReported
		}
	}
	if r.Requests == 0 {
		o.Complainf("diana: these logs have no request\n")
		return command.ErrReported
	}
	if !c.JSON {
		o.Printf("%s", r.Text())
		return err
	}
	encoder := json.NewEncoder(o.Out)
	encoder.SetEscapeHTML(false) // it is no HTML
	encoder.SetIndent("", "  ")
	if failed := encoder.Encode(r); failed != nil {
		return failed
	}
	return err
}
