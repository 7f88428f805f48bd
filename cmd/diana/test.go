// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/replay"
	"github.com/diana-limiter/diana/rule"
)

// testCommand runs scripts that say what a configuration should decide.
type testCommand struct {
	Config string   `placeholder:"FILE" help:"Configuration file to test instead of those that the scripts name."`
	Files  []string `arg:"" name:"file" help:".replay files. - is standard input."`
}

// Help is the end of what --help prints.
func (testCommand) Help() string {
	return `A .replay file lists requests with their times and expected decisions, see docs/replay.md. Diana sends nothing, and asks neither Redis nor a configuration centre. The exit status is 1 if a file cannot be read or if a request gets another decision.`
}

// Run runs every script, also after one that fails.
func (c *testCommand) Run(o *command.Output) (result error) {
	if c.Config == command.Stdin {
		return command.Usagef("--config: - has no meaning here, expected the name of a file")
	}
	if err := command.Named(c.Files...); err != nil {
		return err
	}
	for _, file := range c.Files {
		if err := c.play(o, file); err != nil {
			result = err
			if !errors.Is(err, command.ErrReported) {
				o.Complainf("%v\n", err)
				result = command.ErrReported
			}
		}
	}
	return result
}

// play runs one script.
func (c *testCommand) play(o *command.Output, file string) error {
	f, err := command.OpenFile(file)
	if err != nil {
		return o.Faults(command.Settings{File: file}, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	script, err := replay.Parse(command.NameOf(file), f, command.Vocabulary().Algorithms)
	if err != nil {
		return err
	}
	err = script.Play(memstore.New(memstore.Options{}), func(name string) (replay.Gateway, error) {
		switch {
		case c.Config != "":
			name = c.Config
		case !filepath.IsAbs(name):
			name = filepath.Join(filepath.Dir(file), name)
		}
		return openGateway(o, name)
	})
	if err == nil {
		o.Printf("%s: ok, %s\n", command.NameOf(file), simulate.Plural(int64(script.Rows()), "row"))
	}
	return err
}

// openGateway returns a function that evaluates requests under a configuration. It prints the errors
// of one that is not valid.
func openGateway(o *command.Output, name string) (replay.Gateway, error) {
	loaded, err := command.Settings{File: name}.Load(o)
	if err != nil { // load has printed it
		return nil, fmt.Errorf("%s cannot be used", name)
	}
	t, err := simulate.New(loaded, command.Vocabulary())
	if err != nil {
		return nil, err
	}
	set, err := command.Compile(loaded)
	if err != nil {
		return nil, err
	}
	diverts := map[string]*rule.Divert{} // by the names of rules
	for _, r := range set.Rules {
		diverts[r.Name] = r.Divert
	}
	return func(r replay.Request) (replay.Answer, error) {
		request, err := requestOf(r)
		if err != nil {
			return replay.Answer{}, err
		}
		d, err := t.Take(r.At.UnixMicro(), request)
		defer t.Leave(&d, responseOf(r))
		a := replay.Answer{Allowed: d.Allowed, Wait: d.Delayed, Retry: d.RetryAfter}
		var divert *rule.Divert
		overloaded := false
		for i := range d.Verdicts {
			v := &d.Verdicts[i]
			a.Remaining = append(a.Remaining, v.Remaining)
			if v.Refused() {
				if divert == nil {
					divert = diverts[v.Rule.Name]
				}
				a.By = append(a.By, v.Rule.Name)
				overloaded = overloaded || v.Rule.Algorithm.Uses("measure")
			}
		}
		switch {
		case d.Allowed:
		case overloaded && divert == nil:
			a.Status = http.StatusServiceUnavailable
		case divert == nil:
			a.Status = loaded.Response.Status
		default:
			a.Status = divert.Status // 0 if another server answers: its status is unknown
		}
		return a, err
	}, nil
}

// responseOf returns the response of a row.
func responseOf(r replay.Request) weblog.Response {
	costs := int64(weblog.Unknown)
	if r.Costs != nil {
		costs = *r.Costs
	}
	status := r.Answer
	if r.Latency > 0 {
		r.Lasts, status = cmp.Or(r.Lasts, r.Latency), cmp.Or(status, http.StatusOK)
	}
	return weblog.Response{Duration: r.Lasts.Microseconds(), Status: status, StatusAfter: r.Latency.Microseconds(), Bytes: costs, Cost: costs}
}

// requestOf returns the request of a row as a gateway would receive it.
func requestOf(r replay.Request) (request rule.Request, err error) {
	for actor := range r.Actors {
		if _, err := command.Vocabulary().ParseActor(actor); err != nil {
			return request, err
		}
	}
	client := explainCommand{Method: r.Method, Headers: r.Header, RemoteAddr: r.IP, URL: r.URL}
	of, err := client.request()
	if err != nil {
		return request, err
	}
	of.Actors = r.Actors
	return *of, nil
}
