// SPDX-License-Identifier: MIT

//go:build !unix

package main

import (
	"errors"
	"net"
	"os"
)

var errNoHandover = errors.New("this system cannot pass sockets to another process")

func sendFiles(*net.UnixConn, []byte, []*os.File) error { return errNoHandover }

func receiveFiles(*net.UnixConn) ([]byte, []*os.File, error) { return nil, nil, errNoHandover }

func shared(os.FileInfo) string { return "" }
