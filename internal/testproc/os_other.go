// SPDX-License-Identifier: MIT

//go:build !linux

package testproc

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent returns nil, because only Linux can end a process with its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stop freezes a process.
func stop(p *os.Process) error {
	return exec.Command("kill", "-STOP", strconv.Itoa(p.Pid)).Run()
}

// resume continues a stopped process.
func resume(p *os.Process) error {
	return exec.Command("kill", "-CONT", strconv.Itoa(p.Pid)).Run()
}

// reserve checks only that the port is free now.
func reserve(port int) (release func(), err error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return func() {}, l.Close()
}
