// SPDX-License-Identifier: MIT

//go:build !linux

package redistest

import (
	"net"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent can only be promised on Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }

func (p *process) stop() error {
	return exec.Command("kill", "-STOP", strconv.Itoa(p.pid)).Run()
}

func (p *process) resume() error {
	return exec.Command("kill", "-CONT", strconv.Itoa(p.pid)).Run()
}

// reserve says whether the port is free now.
func reserve(port int) (release func(), err error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return func() {}, l.Close()
}
