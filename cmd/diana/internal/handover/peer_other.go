// SPDX-License-Identifier: MIT

//go:build !linux

package handover

import "net"

// checkPeer accepts every peer. The rights of the folder and of the socket alone keep other users out.
func checkPeer(*net.UnixConn) error { return nil }
