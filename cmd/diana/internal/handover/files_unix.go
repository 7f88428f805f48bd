// SPDX-License-Identifier: MIT

//go:build unix

package handover

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// shared returns why other users can write to a folder, or "".
func shared(folder os.FileInfo) string {
	if s, ok := folder.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
		return "belongs to another user"
	}
	if folder.Mode().Perm()&0o022 != 0 {
		return "can be written to by other users"
	}
	return ""
}

// mostFiles is how many files a message may pass.
const mostFiles = 16

// SendFiles sends a text and open files in one message.
func SendFiles(conn *net.UnixConn, text []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		// Not f.Fd, which lets Accept of the same socket block a thread.
		if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return err
		}
	}
	_, _, err := conn.WriteMsgUnix(text, syscall.UnixRights(fds...), nil)
	return err
}

// connPair returns the two ends of a new connection.
func connPair() (conn net.Conn, end *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	own := os.NewFile(uintptr(fds[0]), "counters")
	defer own.Close()
	end = os.NewFile(uintptr(fds[1]), "counters")
	if conn, err = net.FileConn(own); err != nil {
		return nil, nil, errors.Join(err, end.Close())
	}
	return conn, end, nil
}

// ReceiveFiles returns what sendFiles has sent.
func ReceiveFiles(conn *net.UnixConn) (text []byte, files []*os.File, err error) {
	text, rights := make([]byte, 64<<10), make([]byte, syscall.CmsgSpace(mostFiles*4))
	n, m, _, _, err := conn.ReadMsgUnix(text, rights)
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return nil, nil, io.ErrUnexpectedEOF
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:m])
	if err != nil {
		return nil, nil, err
	}
	for _, message := range messages {
		fds, e := syscall.ParseUnixRights(&message)
		err = errors.Join(err, e)
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return text[:n], files, err
}
