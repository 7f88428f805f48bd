// SPDX-License-Identifier: MIT

package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// offers is the listener at the path of --handover. At first it listens beside the path, so that a bad path
// is an error before the gateway serves. place moves it to the path.
//
// A user who can write to the folder can remove the socket, or pass sockets of another server. So it must
// belong to the user of the gateway, and no other user may write to it, also not with a sticky bit.
type offers struct {
	*net.UnixListener
	path   string      // of --handover
	beside string      // until it is placed
	file   os.FileInfo // of the socket; nil until it is placed
}

// openOffers returns a listener for a path. Only this user can connect.
func openOffers(path string) (*offers, error) {
	if err := checkPlace(path); err != nil {
		return nil, err
	}
	o := &offers{path: path, beside: BesideOf(path)}
	if info, err := os.Lstat(o.beside); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(o.beside) // of a process that was killed
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.beside, Net: "unix"})
	switch {
	case errors.Is(err, syscall.EINVAL):
		return nil, fmt.Errorf("--handover: %s is too long for a socket, expected at most 90 bytes", path)
	case err != nil:
		return nil, fmt.Errorf("--handover: %w, expected a folder in which the gateway can make a socket", err)
	}
	l.SetUnlinkOnClose(false) // the path can be the successor's by then
	o.UnixListener = l
	if err := os.Chmod(o.beside, 0o600); err != nil {
		o.close()
		return nil, fmt.Errorf("--handover: %w", err)
	}
	return o, nil
}

// BesideOf returns where this process listens until its socket is placed.
func BesideOf(path string) string { return fmt.Sprintf("%s.%d", path, os.Getpid()) }

// checkPlace returns an error unless a socket may be at the path: there is a socket or nothing, in a folder
// to which this user alone can write.
func checkPlace(path string) error {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder) // of what a link leads to
	switch {
	case err != nil:
		return fmt.Errorf("--handover: %w, expected a folder of this user", err)
	case !info.IsDir():
		return fmt.Errorf("--handover: %s is no folder, expected a folder of this user", folder)
	}
	if why := shared(info); why != "" {
		return fmt.Errorf("--handover: the folder %s %s, expected one of this user to which no other can write, such as with mode 700", folder, why)
	}
	info, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--handover: %w, expected a socket, or no file", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("--handover: %s is no socket, expected a socket, or no file", path)
	}
	return nil
}

// place moves the socket to its path. It replaces that of a predecessor in one step, so that there is always
// one.
func (o *offers) place() error {
	if err := checkPlace(o.path); err != nil {
		return err
	}
	err := os.Rename(o.beside, o.path)
	if err != nil {
		return fmt.Errorf("--handover: %w", err)
	}
	o.beside = ""
	o.file, err = os.Lstat(o.path)
	return err
}

// where is what is at the path of --handover.
type where int

const (
	ours    where = iota
	gone          // nothing, or the socket of a process that has ended
	foreign       // a file, or the socket of another process
)

// look returns what is at the path. It connects to a socket of another process.
func (o *offers) look() where {
	info, err := os.Lstat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gone
	case err != nil:
		return foreign
	case os.SameFile(info, o.file):
		return ours
	case info.Mode().Type() != fs.ModeSocket:
		return foreign
	}
	conn, err := net.DialTimeout("unix", o.path, handoverTimeout)
	if err == nil {
		_ = conn.Close()
		return foreign
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return gone
	}
	return foreign
}

// close closes the listener. It leaves a socket at the path, which can be the successor's.
func (o *offers) close() {
	_ = o.Close()
	if o.beside != "" {
		_ = os.Remove(o.beside)
	}
}
