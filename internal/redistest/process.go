// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// process is a child of this program. It does not outlive it.
type process struct {
	pid   int
	os    *os.Process
	ended chan struct{} // closed when it is gone
}

// start starts a program that writes to the end of the file called log.
func start(log, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	p := &process{ended: make(chan struct{})}
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
	p.os, p.pid = cmd.Process, cmd.Process.Pid
	return p, nil
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill returns when the process is gone.
func (p *process) kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		return errors.New("it stays")
	}
}
