// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// yard holds the servers of a group. They end with it.
type yard struct {
	*host
	dir      string
	script   string // for wrk
	self     string // this program
	diana    string // the program to measure
	upstream string // URL of the server behind the gateways
	files    int
}

// inYard calls measure with a new yard.
func inYard(ctx context.Context, r *run, measure func(context.Context, *run, *yard) error) (err error) {
	y := &yard{host: &host{}}
	defer y.close()
	if fatal := caught(func() { err = measure(ctx, r, y) }); fatal != nil {
		return fatal
	}
	return err
}

// startAll starts the servers, in a quick run only some, and returns their systems.
func (y *yard) startAll(all []*httpSystem, quick bool) (systems []*httpSystem, err error) {
	for _, s := range all {
		if quick && !s.quick {
			continue
		}
		if s.server, err = y.start(s.command); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		systems = append(systems, s)
	}
	return systems, nil
}

// commander returns the program that serves at an address, with its arguments.
type commander func(y *yard, address string) ([]string, error)

// prepare builds Diana and starts the upstream, which is this program.
func (y *yard) prepare(ctx context.Context, upstream string) (err error) {
	if y.self, err = os.Executable(); err != nil {
		return err
	}
	y.dir = y.TempDir()
	if y.script, err = y.file("wrk.lua", wrkScript); err != nil {
		return err
	}
	y.diana = filepath.Join(y.dir, "diana")
	if out, err := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "cmd", "diana"), "build", "-o", y.diana, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("building diana (run this in the folder bench): %w\n%s", err, out)
	}
	behind, err := y.start(ownCommand(upstream))
	if err != nil {
		return err
	}
	y.upstream = "http://" + behind.address
	return nil
}

// file writes a file under a unique name.
func (y *yard) file(name, text string) (string, error) {
	y.files++
	path := filepath.Join(y.dir, strconv.Itoa(y.files)+"-"+name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// start starts a server, and returns when it answers.
func (y *yard) start(command commander) (*httpServer, error) {
	address := y.freeAddress()
	args, err := command(y, address)
	if err != nil {
		return nil, err
	}
	p, err := testproc.Start(os.DevNull, args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	y.Cleanup(func() { _ = p.Kill() }) // in any case it ends with this program
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	err = testproc.Poll(testproc.Patience, func() error {
		if p.HasEnded() {
			return nil
		}
		answer, err := client.Get("http://" + address + gatewayPath)
		if err == nil {
			_ = answer.Body.Close() // nothing is lost
		}
		return err
	})
	if p.HasEnded() {
		err = errEnded
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return &httpServer{p, address}, nil
}

// freeAddress returns an address of this machine at which nobody listens.
func (y *yard) freeAddress() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testproc.FreePort(y.host)))
}

// dianaCommand is the gateway with a configuration.
func dianaCommand(config string) commander {
	return func(y *yard, address string) ([]string, error) {
		file, err := y.file("diana.yaml", config)
		return dianaArguments(y, address, file), err
	}
}

// dianaArguments starts the gateway with a configuration file.
func dianaArguments(y *yard, address, file string) []string {
	return []string{y.diana, "serve", "--config", file, "--listen", address, "--admin", "127.0.0.1:0", "--upstream", y.upstream}
}

// ownCommand is a server in this program.
func ownCommand(what string) commander {
	return func(y *yard, address string) ([]string, error) {
		return []string{y.self, serverCommand, address, what, y.upstream}, nil
	}
}

// likeDiana is a server that sends the same refusal as the gateway.
func likeDiana(y *yard, address string) ([]string, error) {
	for _, s := range httpSystems() {
		if s.workload != refuseWorkload || s.name != dianaServe {
			continue
		}
		server, err := y.start(s.command)
		if err != nil {
			return nil, err
		}
		return []string{y.self, serverCommand, address, "copy", "http://" + server.address}, nil
	}
	return nil, nil
}

// read parses what wrkScript prints.
func (got *wrkResult) read(out string) error {
	_, line, ok := strings.Cut(out, "result\t")
	var took, half, most float64 // microseconds
	if _, err := fmt.Sscan(line, &got.requests, &got.refused, &got.broken, &took, &half, &most); err != nil || !ok {
		return fmt.Errorf("wrk printed %q", out)
	}
	duration := func(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }
	got.took, got.p50, got.p99 = duration(took), duration(half), duration(most)
	return nil
}
