// SPDX-License-Identifier: MIT

//go:build !linux

package testproc

import (
	"net"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent can only be promised on Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }

// Stop freezes the process.
func (p *Process) Stop() error {
	return exec.Command("kill", "-STOP", strconv.Itoa(p.PID)).Run()
}

// Resume lets a stopped process go on.
func (p *Process) Resume() error {
	return exec.Command("kill", "-CONT", strconv.Itoa(p.PID)).Run()
}

// reserve says whether the port is free now.
func reserve(port int) (release func(), err error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return func() {}, l.Close()
}
