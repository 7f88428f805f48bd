// SPDX-License-Identifier: MIT

package gateway

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
)

// oldProcess returns the listener of a process that hands over, played by the test.
func oldProcess(t *testing.T) (path string, l *net.UnixListener) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path, l
}

// successor returns a gateway that takes over from the process at path when it runs.
func successor(t *testing.T, path string) *Gateway {
	t.Helper()
	r := start(t, "limits: []", http.NotFoundHandler())
	h, err := handover.TakeOver(path, r.logger)
	if err != nil {
		t.Fatal(err)
	}
	next := assembled(r.limiter, nil, usualTimeouts, r.logger)
	if err := next.listen(listenAt{requests: "127.0.0.1:0", handover: h}); err != nil {
		t.Fatal(err)
	}
	return next
}

// A signal that arrives when a new process has the sockets ends it too.
func TestHandoverIsAbandonedLate(t *testing.T) {
	t.Parallel()
	path, l := oldProcess(t)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	read := make(chan int)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			read <- -1
			return
		}
		defer conn.Close()
		_ = handover.SendFiles(conn, []byte("{}"), nil)
		n, _ := conn.Read(make([]byte, 1))
		read <- n
	}()
	next := successor(t, path)
	if err := next.Run(t.Context(), signals, func() {}); err != nil {
		t.Error(err)
	}
	if n := <-read; n != 0 {
		t.Error("it says that it is ready")
	}
}

// handingOver plays a process that hands over the counters of its rules: it passes no socket. asked gets its connection,
// and that for the counters, when a successor has asked for them. The counters never come.
func handingOver(t *testing.T) (path string, asked <-chan [2]io.ReadCloser) {
	t.Helper()
	path, l := oldProcess(t)
	conns := make(chan [2]io.ReadCloser, 1)
	go func() {
		defer close(conns)
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
		if err := handover.SendFiles(conn, []byte(`{"limiters": ["rules"]}`), nil); err != nil {
			t.Error(err)
		}
		_, files, err := handover.ReceiveFiles(conn)
		if err != nil || len(files) != 1 {
			t.Errorf("%d connections, %v", len(files), err)
			return
		}
		t.Cleanup(func() { files[0].Close() })
		conns <- [2]io.ReadCloser{conn, files[0]}
	}()
	return path, conns
}

// A signal that arrives while the counters are on their way ends the new process. The old one continues.
func TestHandoverIsAbandonedByTheWay(t *testing.T) {
	t.Parallel()
	path, asked := handingOver(t)
	next := successor(t, path)
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- next.Run(t.Context(), signals, func() {}) }()
	old := <-asked
	signals <- syscall.SIGTERM
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n, err := old[0].Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("it says that it is ready")
	}
}

// A new process that is too late does not serve, because the old one continues.
func TestHandoverTooLate(t *testing.T) {
	t.Parallel()
	path, asked := handingOver(t)
	next := successor(t, path)
	go func() {
		for _, old := range <-asked {
			if old != nil {
				old.Close()
			}
		}
	}()
	if err := next.Run(t.Context(), nil, func() {}); err == nil || !strings.Contains(err.Error(), "no longer waits for this one") {
		t.Error(err)
	}
}
