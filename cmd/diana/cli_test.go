// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/rule"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	released := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: "true"},
	}}
	for _, test := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{released, "diana   v1.2.3\ncommit  0123abc (modified)\ngo      go"},
		{&debug.BuildInfo{}, "diana   unknown\ncommit  unknown\ngo      go"},
		{nil, "diana   unknown\ncommit  unknown\ngo      go"},
	} {
		var b bytes.Buffer
		printVersion(&command.Output{Out: &b}, test.info)
		if !strings.HasPrefix(b.String(), test.want) {
			t.Errorf("%q", b.String())
		}
	}
}

func TestSplitURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, host, target string }{
		{"/", "localhost", "/"},
		{"/a%2Fb?c=d", "localhost", "/a%2Fb?c=d"},
		{"//a", "localhost", "//a"},
		{"/a#b", "localhost", "/a"},
		{"http://h", "h", "/"},
		{"http://h?q", "h", "/?q"},
		{"http://h:80/a;b//c", "h:80", "/a;b//c"},
		{"HTTPS://user:pw@h/a#b", "h", "/a"},
		{"http://[::1]:8080/x", "[::1]:8080", "/x"},
	} {
		host, target, err := splitURL(test.text)
		if err != nil || host != test.host || target != test.target {
			t.Errorf("%s: %q, %q, %v", test.text, host, target, err)
		}
	}
}

func TestFaultsOfOtherKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
	}{
		{config.Errors{{File: "f", Line: 1, Column: 2, Message: "m"}, {File: "f", Line: 3, Column: 4, Message: "n"}}, "f:1:2: m\nf:3:4: n\n"},
		{command.ErrReported, "f: reported\n"},
	} {
		var b bytes.Buffer
		if err := (&command.Output{Err: &b}).Faults(command.Settings{File: "f"}, test.err); !errors.Is(err, command.ErrReported) || b.String() != test.want {
			t.Errorf("%v, %q", err, b.String())
		}
	}
}

// The demonstration is valid, and needs neither Redis nor a configuration centre.
func TestDemonstration(t *testing.T) {
	t.Parallel()
	c, err := command.Settings{}.Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 || c.Redis != nil || c.Remote != nil {
		t.Error(c)
	}
	set, err := command.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range set.Rules {
		if r.Scope != rule.Local {
			t.Error(r.Name, "is", r.Scope)
		}
	}
}

// A command fails if its result cannot be written.
func TestOutputFails(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if status := run(context.Background(), []string{"version"}, fullDisk{}, &b); status != command.StatusBad || b.String() != "diana: disk full\n" {
		t.Error(status, b.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// serve leaves nothing behind when it ends. The test must not run beside others.
func TestServeLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, log testproc.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, &out, &log)
	}()
	if !testproc.Becomes(func() bool { return addresses.MatchString(out.String()) }) {
		t.Fatal(out.String(), log.String())
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, base := range addresses.FindStringSubmatch(out.String())[1:] {
		request, _ := http.NewRequest(http.MethodGet, base+"/healthz", nil)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Error(base, response.Status)
		}
	}
	transport.CloseIdleConnections()
	stop()
	if s := <-status; s != command.StatusGood {
		t.Error("status", s, log.String())
	}
	goleak.VerifyNone(t, before)
}
