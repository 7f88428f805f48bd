// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/diana-limiter/diana/cmd/diana/internal/trial"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/replay"
	"github.com/diana-limiter/diana/rule"
)

// playScripts plays .replay files, also after one that fails.
func (c *replayCommand) playScripts(o *output) (result error) {
	for _, file := range c.Files {
		if err := c.playScript(o, file); err != nil {
			result = err
			if !errors.Is(err, errReported) {
				o.complainf("%v\n", err)
				result = errReported
			}
		}
	}
	return result
}

func (c *replayCommand) playScript(o *output, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return o.faults(settings{file}, err)
	}
	defer f.Close()
	script, err := replay.Parse(file, f, vocabulary().Algorithms)
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
		return o.openGateway(name)
	})
	if err == nil {
		o.printf("%s: ok, %s\n", file, plural(int64(script.Rows()), "row"))
	}
	return err
}

// openGateway returns what judges by a configuration.
func (o *output) openGateway(name string) (replay.Gateway, error) {
	loaded, err := o.load(name)
	if err != nil { // which has been told
		return nil, fmt.Errorf("%s cannot be used", name)
	}
	t, err := trial.New(loaded, vocabulary())
	if err != nil {
		return nil, err
	}
	set, err := compile(loaded)
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
		defer t.Leave(&d, r.Lasts.Microseconds(), r.Answer)
		a := replay.Answer{Allowed: d.Allowed, Wait: d.Delayed, Retry: d.RetryAfter}
		var divert *rule.Divert
		for i := range d.Verdicts {
			v := &d.Verdicts[i]
			a.Remaining = append(a.Remaining, v.Remaining)
			if v.Refused() {
				if divert == nil {
					divert = diverts[v.Rule.Name]
				}
				a.By = append(a.By, v.Rule.Name)
			}
		}
		switch {
		case d.Allowed:
		case divert == nil:
			a.Status = loaded.Response.Status
		default:
			a.Status = divert.Status // 0 of a server that is asked instead: who knows
		}
		return a, err
	}, nil
}

// requestOf returns the request of a script as the gateway would see it.
func requestOf(r replay.Request) (request rule.Request, err error) {
	for actor := range r.Actors {
		if _, err := vocabulary().ParseActor(actor); err != nil {
			return request, err
		}
	}
	client := explainCommand{Method: r.Method, Headers: r.Header, RemoteAddr: r.IP, URL: r.URL}
	h, err := client.request()
	if err != nil {
		return request, err
	}
	return rule.Request{Method: h.Method, Path: h.URL.EscapedPath(), Actors: r.Actors, HTTP: h}, nil
}
