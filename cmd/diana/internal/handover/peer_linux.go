// SPDX-License-Identifier: MIT

package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// checkPeer returns an error if the process at the other end of a connection belongs to another user.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to the user %d, expected %d", peer.Uid, os.Geteuid())
	}
	return nil
}
