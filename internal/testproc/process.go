// SPDX-License-Identifier: MIT

// Package testproc starts the servers that tests need as processes. Each has a port of its own and
// a log, and ends with the test program.
package testproc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// TB is the part of testing.TB that a server needs to end with a test. A program that is not a test can
// implement it too. Fatalf and Skipf must not return.
type TB interface {
	Cleanup(func())
	Failed() bool
	Fatalf(format string, args ...any)
	Helper()
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	TempDir() string
}

// Process is a child of this program, and ends with it.
type Process struct {
	PID   int
	os    *os.Process
	ended chan struct{} // closed when the process has ended
}

// Start starts a program that writes to the end of the file called log.
func Start(log, name string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	p := &Process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For the kernel this thread is the parent, so the thread must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log has more than the error
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.os, p.PID = cmd.Process, cmd.Process.Pid
	return p, nil
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process at once, and returns when it has ended.
func (p *Process) Kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(Patience):
		return errors.New("the process has not ended")
	}
}

// Terminate asks the process to end, as systemd does.
func (p *Process) Terminate() error { return p.os.Signal(syscall.SIGTERM) }

// Stop freezes the process.
func (p *Process) Stop() error { return stop(p.os) }

// Resume continues a stopped process.
func (p *Process) Resume() error { return resume(p.os) }
