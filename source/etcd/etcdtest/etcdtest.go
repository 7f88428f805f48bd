// SPDX-License-Identifier: MIT

// Package etcdtest gives tests a real etcd, which runs in the process of the test. It is a
// module of its own, because the server has many dependencies.
package etcdtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
)

// Options configure an etcd. The zero value is one without authentication and without TLS.
type Options struct {
	// Username and Password are those of a user with all permissions. If they are set, etcd
	// allows no anonymous access.
	Username, Password string

	// TLS makes etcd accept only TLS, with a certificate that etcd makes itself.
	TLS bool
}

// Server is an etcd. One goroutine at a time calls its methods. An error fails the test.
type Server struct {
	t       testing.TB
	options Options
	dir     string
	addr    string // host:port of clients, the same after a restart
	secured bool   // the user exists
	etcd    *embed.Etcd
	client  *clientv3.Client
}

// patience is how long a test waits for etcd.
const patience = time.Minute

// smallSegments makes a new etcd use 2 MB of disk instead of 120 MB, and a tenth of the time.
var smallSegments = sync.OnceFunc(func() { wal.SegmentSizeBytes = 1 << 20 })

// Start starts an etcd without any keys, which answers when Start returns. It stops at the end
// of the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	smallSegments()
	s := &Server{t: t, options: o, dir: t.TempDir(), addr: "127.0.0.1:0"}
	t.Cleanup(s.Stop)
	s.Start()
	return s
}

// Addr returns host:port. It stays the same over restarts.
func (s *Server) Addr() string { return s.addr }

// TLSConfig returns a new configuration for clients, nil without TLS.
func (s *Server) TLSConfig() *tls.Config {
	s.t.Helper()
	if !s.options.TLS {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "fixtures", "client", "cert.pem"))
	s.must("reading the certificate", err)
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AppendCertsFromPEM(text)
	return c
}

// Start starts etcd again after Stop, with the keys that it had.
func (s *Server) Start() {
	s.t.Helper()
	scheme := "http"
	if s.options.TLS {
		scheme = "https"
	}
	config := embed.NewConfig()
	config.Dir = s.dir
	config.LogLevel = "fatal"
	config.UnsafeNoFsync = true
	config.TickMs, config.ElectionMs = 10, 100
	config.ListenClientUrls = []url.URL{{Scheme: scheme, Host: s.addr}}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ClientAutoTLS = s.options.TLS
	config.BcryptCost = uint(bcrypt.MinCost)
	config.MaxRequestBytes = 8 << 20
	var err error
	for range 50 { // another process may use this port
		if s.etcd, err = embed.StartEtcd(config); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.must("starting etcd", err)
	select {
	case <-s.etcd.Server.ReadyNotify():
	case <-time.After(patience):
		s.t.Fatal("etcdtest: etcd is not ready")
	}
	s.addr = s.etcd.Clients[0].Addr().(*net.TCPAddr).String()
	if s.options.Username != "" && !s.secured {
		s.connect("", "")
		s.secure()
		s.disconnect()
		s.secured = true
	}
	s.connect(s.options.Username, s.options.Password)
}

// secure creates the user and enables authentication.
func (s *Server) secure() {
	s.t.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	_, err := s.client.RoleAdd(ctx, "root")
	s.must("adding a role", err)
	for _, name := range []string{"root", s.options.Username} {
		_, err = s.client.UserAdd(ctx, name, s.options.Password)
		s.must("adding a user", err)
		_, err = s.client.UserGrantRole(ctx, name, "root")
		s.must("granting a role", err)
	}
	_, err = s.client.AuthEnable(ctx)
	s.must("enabling authentication", err)
}

func (s *Server) connect(username, password string) {
	s.t.Helper()
	var err error
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{s.addr}, TLS: s.TLSConfig(), Username: username, Password: password,
		DialTimeout: patience, Logger: zap.NewNop(),
		MaxCallSendMsgSize: 8 << 20,
	})
	s.must("connecting", err)
}

func (s *Server) disconnect() {
	if s.client != nil {
		_ = s.client.Close() // its error is that of its context
		s.client = nil
	}
}

// Stop stops etcd, if it runs.
func (s *Server) Stop() {
	s.disconnect()
	if s.etcd == nil {
		return
	}
	// Those who watch would hold up the end for seconds.
	s.etcd.Server.HardStop()
	s.etcd.Close()
	s.etcd = nil
}

// Wipe stops etcd and starts it again without data, so that its revisions start again from 1.
func (s *Server) Wipe() {
	s.t.Helper()
	s.Stop()
	s.must("removing the data", os.RemoveAll(filepath.Join(s.dir, "member")))
	s.secured = false
	s.Start()
}

// Put sets a key.
func (s *Server) Put(key, text string) {
	s.t.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	_, err := s.client.Put(ctx, key, text)
	s.must("put", err)
}

// Delete removes a key.
func (s *Server) Delete(key string) {
	s.t.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	_, err := s.client.Delete(ctx, key)
	s.must("delete", err)
}

// Compact has etcd forget all but what there is now.
func (s *Server) Compact() {
	s.t.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	now, err := s.client.Get(ctx, "any")
	s.must("get", err)
	_, err = s.client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	s.must("compact", err)
}

func (s *Server) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), patience)
}

func (s *Server) must(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("etcdtest: %s: %v", what, err)
	}
}
