// SPDX-License-Identifier: MIT

package testproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Stop freezes the process. It returns when all threads have stopped: the signal alone only asks for it.
func (p *Process) Stop() error {
	if err := p.os.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return Poll(Patience, func() error {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", p.PID, task.Name()))
			if err != nil {
				return err
			}
			// number (name) state ...
			if _, rest, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(rest, []byte("T")) {
				return errors.New("it goes on")
			}
		}
		return nil
	})
}

// Resume lets a stopped process go on.
func (p *Process) Resume() error { return p.os.Signal(syscall.SIGCONT) }

// reserve keeps a port from everyone who asks for a free one, also while the server
// that has it is down.
//
// A socket that is bound but does not listen does so, and shares its port with one
// that listens as long as both say SO_REUSEADDR, as Redis does. This one says it only
// once it is bound, so that of two reservations the second fails.
func reserve(port int) (release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return func() { _ = syscall.Close(fd) }, nil
}
