// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// A reader pastes the sh blocks of README.md and docs/guide.md into a shell, in order. Each text block
// is the output of the sh block before it. A block without one prints nothing.
func TestGuide(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("README.md", func(t *testing.T) {
		t.Parallel()
		s := newSession(t, t.TempDir())
		s.replace("go run ./cmd/diana serve", fmt.Sprintf(`go build -C %q -o "$PWD/" ./cmd/diana
./diana serve --listen 127.0.0.1:8080 --admin 127.0.0.1:9090 > diana.log 2>&1 &
until curl -s -o /dev/null http://127.0.0.1:8080/; do sleep 0.1; done`, root)) // a reader has another terminal
		s.replace("make ", fmt.Sprintf("make -s -C %q -n >/dev/null ", root)) // this test is a part of them
		s.paste(filepath.Join(root, "README.md"), filepath.Join(root, "README.zh-CN.md"))
	})
	t.Run("docs/guide.md", func(t *testing.T) {
		t.Parallel()
		s := newSession(t, root)
		s.paste(filepath.Join(root, "docs/guide.md"), filepath.Join(root, "docs/zh-CN/guide.md"))
	})
}

// step is an sh block of a document, with the text block that shows its output.
type step struct{ command, output string }

// codeBlock matches a block of a document, with its language and its text.
var codeBlock = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

func stepsOf(t *testing.T, document string) []step {
	t.Helper()
	var steps []step
	before := ""
	for _, b := range codeBlock.FindAllStringSubmatch(string(mustRead(t, document)), -1) {
		switch {
		case b[1] == "sh":
			steps = append(steps, step{command: b[2]})
		case b[1] == "text" && before == "sh":
			steps[len(steps)-1].output = b[2]
		case b[1] == "text":
			t.Fatalf("%s: this is the output of no sh block:\n%s", document, b[2])
		}
		before = b[1]
	}
	return steps
}

// rewrite changes the output of the step in a document.
func (s step) rewrite(t *testing.T, document, output string) {
	t.Helper()
	text, command := string(mustRead(t, document)), "```sh\n"+s.command+"```\n\n```text\n"
	edited := strings.Replace(text, command+s.output, command+output, 1)
	if edited == text {
		t.Fatalf("%s has no text block after\n%s", document, s.command)
	}
	if err := os.WriteFile(document, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
}

// session is a shell with the blocks that it has run.
type session struct {
	t        *testing.T
	stdin    io.Writer
	out      testproc.Buffer // standard output and standard error of the shell and its jobs
	read     int             // how much of out is compared
	blocks   int
	toFree   []string // pairs of a document's text and what the test runs instead
	fromFree []string // pairs of a free port and the document's port
}

// ports matches the ports that the documents use.
var ports = regexp.MustCompile(`\b(3000|3001|6379|808[01]|909[01])\b`)

func newSession(t *testing.T, dir string) *session {
	t.Helper()
	s := &session{t: t}
	shell := exec.Command("bash", "-s")
	shell.Dir = dir
	shell.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "GOWORK=", "GOFLAGS=", "MAKEFLAGS=")
	shell.Stdout, shell.Stderr = &s.out, &s.out
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the test can end the shell's jobs too
	stdin, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	s.stdin = stdin
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		_ = shell.Wait()
	})
	s.write("trap 'kill $(jobs -p)' EXIT\n") // for a test that is killed
	s.replace("diana serve", "diana serve --listen 127.0.0.1:8080 --admin 127.0.0.1:9090")
	return s
}

// replace makes the session run another text than the document's.
func (s *session) replace(text, with string) { s.toFree = append(s.toFree, text, with) }

func (s *session) write(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.stdin, text); err != nil {
		s.t.Fatal(err)
	}
}

// paste runs the sh blocks of a document, and compares their output with its text blocks. With -update
// it writes the output to the text blocks of the document and of its translation.
func (s *session) paste(document, translation string) {
	s.t.Helper()
	free := map[string]string{} // by the document's port
	for _, port := range ports.FindAllString(string(mustRead(s.t, document))+"8080 9090", -1) {
		if free[port] == "" {
			free[port] = strconv.Itoa(testproc.FreePort(s.t))
			s.fromFree = append(s.fromFree, free[port], port)
		}
	}
	replacer := strings.NewReplacer(s.toFree...)
	for _, step := range stepsOf(s.t, document) {
		command := ports.ReplaceAllStringFunc(replacer.Replace(step.command), func(port string) string { return free[port] })
		got := s.run(command, step.output)
		if stable(got) == stable(step.output) {
			continue
		}
		if !*update {
			s.t.Fatalf("%s\nprints\n%s\nexpected\n%s", command, got, step.output)
		}
		step.rewrite(s.t, document, got)
		step.rewrite(s.t, translation, got)
	}
}

// run runs a block and returns its output. It waits for the expected output, because a job in the
// background can print it late.
func (s *session) run(command, expected string) (got string) {
	s.t.Helper()
	s.blocks++
	end := fmt.Sprintf("(end of block %d)\n", s.blocks)
	s.write(command + "printf '(end of block %d)\\n' " + strconv.Itoa(s.blocks) + "\n")
	err := testproc.Poll(10*testproc.Patience, func() error { // a build takes long
		if !strings.Contains(s.out.String(), end) {
			return errors.New("the block has not ended")
		}
		return nil
	})
	if err != nil {
		s.t.Fatalf("%s\n%v, and has printed\n%s", command, err, s.out.String()[s.read:])
	}
	late := testproc.Patience
	if *update {
		late /= 10
	}
	fromFree := strings.NewReplacer(s.fromFree...)
	_ = testproc.Poll(late, func() error {
		got = strings.Replace(s.out.String()[s.read:], end, "", 1)
		got = downloads.ReplaceAllString(got, "")
		got = fromFree.Replace(strings.ReplaceAll(got, "\r", "")) // curl shows the ends of HTTP's lines
		if stable(got) != stable(expected) {
			return errors.New("other output")
		}
		return nil
	})
	s.read = len(s.out.String())
	return got
}

// downloads matches what "go" prints on a machine that has a module not yet.
var downloads = regexp.MustCompile("(?m)^go: downloading .*\n")

// changing matches output that differs from run to run, behind a text that stays.
var changing = regexp.MustCompile(`(Date: |X-Request-Id: |Retry-After: |;t=|"ip";r=|repeated in |time=|duration=|request_id=|version=)` +
	`([A-Z][a-z]+, .*|"[^"]*"|[^\s,;"]+)`)

// listed matches a line of "diana rollback --list", up to the time, the length and the user.
var listed = regexp.MustCompile(`(?m)^(\* +\d+  [0-9a-f]{12}  ).*`)

// stable returns output with a dot for all that changes from run to run.
func stable(output string) string {
	return listed.ReplaceAllString(changing.ReplaceAllString(output, "$1."), "$1.")
}
