// SPDX-License-Identifier: MIT

// Package testproc starts the servers that tests need as processes: on ports that nobody
// else has, with a log, and none outlives the test program.
package testproc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Process is a child of this program. It does not outlive it.
type Process struct {
	PID   int
	os    *os.Process
	ended chan struct{} // closed when it is gone
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
		// To the kernel the parent is the thread, not the program, so this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it says how the child ended, which the log says better
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.os, p.PID = cmd.Process, cmd.Process.Pid
	return p, nil
}

// HasEnded reports whether the process is gone.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process at once, and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(Patience):
		return errors.New("it stays")
	}
}
