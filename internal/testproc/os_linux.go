// SPDX-License-Identifier: MIT

package testproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent makes the kernel end a process with its parent.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stop freezes a process. It returns when all threads have stopped, because the signal alone only
// asks for that.
func stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return Poll(Patience, func() error {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", p.Pid, task.Name()))
			if err != nil {
				return err
			}
			// number (name) state ...
			if _, rest, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(rest, []byte("T")) {
				return errors.New("a thread has not stopped")
			}
		}
		return nil
	})
}

// resume continues a stopped process.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// reserve reserves a port, so that no other test gets it as a free port, also while its server is
// down.
//
// A socket that is bound but does not listen reserves its port. A server can listen on that port
// if both sockets have SO_REUSEADDR, as Redis' sockets do. This socket gets the option only after
// it is bound. So of two reservations of one port the second fails.
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
