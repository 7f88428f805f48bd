// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/testproc"
)

func TestMain(m *testing.M) {
	// A program with the race detector takes a second to end without this setting.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
	testscript.Main(m, map[string]func(){
		"diana":     main,
		"request":   requestMain,
		"largeheap": largeHeapMain,
		"killable":  killableMain,
	})
}

// TestScript runs testdata/script. Besides the commands of testscript, scripts have
//
//	request [-X METHOD] [-H 'NAME: VALUE']... [-d BODY] URL
//		a program: prints the answer's status, header and body; fails without an answer
//	ask [-X METHOD] [-H 'NAME: VALUE']... [-d BODY] URL
//		does the same without a process, whose start takes longer than the request
//	expand FILE
//		replaces $NAME in a file by the value of the environment
//	fails ARGUMENTS
//		runs diana, which must end with status 1
//	misused ARGUMENTS
//		runs diana, which must end with status 2 and print nothing
//	serve [FLAGS]
//		starts diana serve on free ports, and sets $gateway and $admin
//	signal HUP|INT|TERM
//		sends it a signal
//	logged PATTERN
//		waits until its standard error has a match
//	ended STATUS
//		waits until it ends; stdout and stderr then look at its output
//	await PATTERN URL
//		sends GET requests for URL until the answer, as request prints it, has a match
//	upstream
//		starts a server, and sets $upstream: /slow answers after a request for
//		/release, /waiting shows how many wait for that, other paths are an echo
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"expand":   scriptExpand,
			"ask":      scriptAsk,
			"fails":    scriptFails,
			"misused":  scriptMisused,
			"serve":    scriptServe,
			"signal":   scriptSignal,
			"logged":   scriptLogged,
			"ended":    scriptEnded,
			"await":    scriptAwait,
			"upstream": scriptUpstream,
		},
	})
}

func scriptExpand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	file := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(file, []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o644))
}

func scriptAsk(ts *testscript.TestScript, neg bool, args []string) {
	err := request(ts.Stdout(), args)
	if err != nil {
		_, _ = fmt.Fprintln(ts.Stderr(), err)
	}
	if neg != (err != nil) {
		ts.Fatalf("the request ended with %v", err)
	}
}

func scriptFails(ts *testscript.TestScript, neg bool, args []string) {
	runFor(ts, command.StatusBad, args)
}

func scriptMisused(ts *testscript.TestScript, neg bool, args []string) {
	runFor(ts, command.StatusUsage, args)
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("it prints %q", out)
	}
}

// runFor runs diana, which must end with this status.
func runFor(ts *testscript.TestScript, status int, args []string) {
	err := ts.Exec("diana", args...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != status {
		ts.Fatalf("expected exit status %d, got %v", status, err)
	}
}

// process is a diana serve that a script has started.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr testproc.Buffer
	ended          chan struct{}
	err            error // of Wait, once ended
}

var processes sync.Map // of *process, by *testscript.TestScript

func processOf(ts *testscript.TestScript) *process {
	p, ok := processes.Load(ts)
	if !ok {
		ts.Fatalf("there is no diana serve")
	}
	return p.(*process)
}

// addresses are the lines that a program with two listeners prints, and address is one such line.
var (
	addresses = regexp.MustCompile(`^diana: serving on (https?://127\.0\.0\.1:\d+)\ndiana: admin on (http://127\.0\.0\.1:\d+)\n$`)
	address   = regexp.MustCompile(`(?m)^diana: (serving|admin|check) on (https?://127\.0\.0\.1:\d+)$`)
)

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: serve [FLAGS]; for one that fails, exec diana serve")
	}
	p := &process{ended: make(chan struct{})}
	listeners := 2
	switch {
	case !slices.Contains(args, "--check"):
		args = append(args, "--listen", "127.0.0.1:0")
	case slices.Contains(args, "--listen"):
		listeners++
	}
	p.cmd = exec.Command("diana", append([]string{"serve", "--admin", "127.0.0.1:0"}, args...)...)
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	ts.Check(p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	processes.Store(ts, p)
	ts.Defer(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		ts.Logf("[diana serve]\n%s%s", p.stdout.String(), p.stderr.String())
		processes.Delete(ts)
	})
	var found [][]string
	if !testproc.Becomes(func() bool {
		found = address.FindAllStringSubmatch(p.stdout.String(), -1)
		return len(found) == listeners
	}) {
		ts.Fatalf("no addresses: %q", p.stdout.String())
	}
	for _, line := range found {
		name := strings.Replace(line[1], "serving", "gateway", 1)
		ts.Setenv(name, line[2])
		_, host, _ := strings.Cut(line[2], "://")
		ts.Setenv(name+"_address", host)
	}
}

func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	if neg || len(args) != 1 || signals[args[0]] == nil {
		ts.Fatalf("usage: signal HUP|INT|TERM")
	}
	ts.Check(processOf(ts).cmd.Process.Signal(signals[args[0]]))
}

func scriptLogged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: logged PATTERN")
	}
	p, pattern := processOf(ts), regexp.MustCompile("(?m)"+args[0])
	if !testproc.Becomes(func() bool { return pattern.MatchString(p.stderr.String()) }) {
		ts.Fatalf("not logged: %s", pattern)
	}
}

func scriptEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ended STATUS")
	}
	p := processOf(ts)
	select {
	case <-p.ended:
	case <-time.After(testproc.Patience):
		ts.Fatalf("it has not ended")
	}
	_, _ = ts.Stdout().Write([]byte(p.stdout.String()))
	_, _ = ts.Stderr().Write([]byte(p.stderr.String()))
	if status := strconv.Itoa(p.cmd.ProcessState.ExitCode()); status != args[0] {
		ts.Fatalf("it ended with %v", p.cmd.ProcessState)
	}
}

func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await PATTERN URL")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	var last string
	if !testproc.Becomes(func() bool {
		var b bytes.Buffer
		if err := request(&b, []string{args[1]}); err != nil {
			last = err.Error()
			return false
		}
		last = b.String()
		return pattern.MatchString(last)
	}) {
		ts.Fatalf("no match for %s in\n%s", pattern, last)
	}
}

func scriptUpstream(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: upstream")
	}
	server := newUpstream()
	ts.Defer(server.Close)
	ts.Setenv("upstream", server.URL)
}
