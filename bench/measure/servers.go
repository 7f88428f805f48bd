// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"errors"
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

// Yard holds the servers of a group, which are processes of their own. They end with it.
type Yard struct {
	*Host
	Dir      string
	Diana    string // the program to measure
	Upstream string // URL of the server behind the gateways
	self     string // this program
	files    int
}

// ServeCommand is the hidden subcommand of this program by which it is a server: ADDRESS KIND ARGUMENT.
const ServeCommand = "serve"

// Server is a running server.
type Server struct {
	*testproc.Process
	Address string
}

// Time returns the processor time of the server in seconds.
func (s *Server) Time() float64 { return ProcessTime(s.PID) }

// Peak returns the peak of the memory of the server in bytes, or 0 if the system does not say.
func (s *Server) Peak() float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes float64
	_, _ = fmt.Sscan(rest, &kilobytes)
	return kilobytes * 1024
}

// Command returns the program that serves at an address, with its arguments.
type Command func(y *Yard, address string) ([]string, error)

// InYard calls in with a new yard. With an upstream, which is a server of this program, it also builds Diana.
func InYard(ctx context.Context, r *Run, upstream string, in func(*Yard) error) (err error) {
	y := &Yard{Host: &Host{}}
	defer y.Close()
	fatal := Caught(func() {
		y.Dir = y.TempDir()
		if y.self, err = os.Executable(); err == nil && upstream != "" {
			err = y.prepare(ctx, r, upstream)
		}
		if err == nil {
			err = in(y)
		}
	})
	return errors.Join(err, fatal)
}

// prepare builds Diana, unless the run has it, and starts the upstream.
func (y *Yard) prepare(ctx context.Context, r *Run, upstream string) (err error) {
	if y.Diana = r.Diana; y.Diana == "" {
		r.Note("  building diana")
		if y.Diana, err = BuildDiana(ctx, y.Dir); err != nil {
			return err
		}
	}
	behind, err := y.Start(Own(upstream))
	if err == nil {
		y.Upstream = "http://" + behind.Address
	}
	return err
}

// BuildDiana builds the program into a folder, and returns its path.
func BuildDiana(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "diana")
	out, err := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "cmd", "diana"), "build", "-o", program, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("building diana (run this in the folder bench): %w\n%s", err, out)
	}
	return program, err
}

// File writes a file under a unique name.
func (y *Yard) File(name, text string) (string, error) {
	y.files++
	path := filepath.Join(y.Dir, strconv.Itoa(y.files)+"-"+name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// FreeAddress returns an address of this machine at which nobody listens.
func (y *Yard) FreeAddress() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testproc.FreePort(y.Host)))
}

// Start starts a server, and returns when it answers.
func (y *Yard) Start(command Command) (*Server, error) {
	address := y.FreeAddress()
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
		answer, err := client.Get("http://" + address)
		if err == nil {
			_ = answer.Body.Close() // nothing is lost
		}
		return err
	})
	if p.HasEnded() {
		err = errors.New("the process has ended")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return &Server{p, address}, nil
}

// Own is a server of this program for the upstream.
func Own(kind string) Command {
	return func(y *Yard, address string) ([]string, error) { return y.Own(kind, y.Upstream)(y, address) }
}

// Own is a server of this program.
func (y *Yard) Own(kind, argument string) Command {
	return func(_ *Yard, address string) ([]string, error) {
		return []string{y.self, ServeCommand, address, kind, argument}, nil
	}
}

// Needs returns an error if a program is missing.
func Needs(program string) error {
	if Program(program) == "" {
		return fmt.Errorf("%s is missing: install it (Debian: apt-get install %[1]s)", program)
	}
	return nil
}

// Program returns the path of a program, or "".
func Program(name string) string {
	for _, name := range []string{name, "/usr/sbin/" + name} { // the second is often only in root's PATH
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
