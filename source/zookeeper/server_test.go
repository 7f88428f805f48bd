// SPDX-License-Identifier: MIT

package zookeeper_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/diana-limiter/diana/internal/testproc"
)

// jar is the server in Debian's package libzookeeper-java. Its manifest names the libraries that it
// needs, except those in moreJars: one writes the log to the standard error, and two are for TLS.
const (
	jar      = "/usr/share/java/zookeeper.jar"
	moreJars = ":/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"
)

// options configure a server. The zero value has no TLS, no user, and the limits of ZooKeeper.
type options struct {
	username, password string // owner of all nodes; empty: everybody may do everything
	tls                bool
	large              bool // texts of 8 MB are allowed
	brief              bool // a session without messages expires after 4 s
	long               bool // a session without messages expires after 10 minutes
}

// server is a real ZooKeeper, an ensemble of one.
type server struct {
	t       *testing.T
	options options
	dir     string
	port    int
	java    string
	classes string // where Java finds the server
	cert    *x509.CertPool
	process *testproc.Process // nil: stopped
	client  *zk.Conn          // nil: none
}

// start starts a server without nodes, which answers when start returns. The environment variable
// ZOOKEEPER_CLASSPATH names another server than Debian's. Without a server the test is skipped, or
// fails if the environment has CI.
func start(t *testing.T, o options) *server {
	t.Helper()
	java, err := exec.LookPath("java")
	classes := os.Getenv("ZOOKEEPER_CLASSPATH")
	if err == nil && classes == "" {
		classes = jar + moreJars
		_, err = os.Stat(jar)
	}
	if err != nil {
		err = fmt.Errorf("SKIPPED: this test needs Debian's packages default-jre-headless and libzookeeper-java: %w", err)
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := &server{t: t, options: o, dir: t.TempDir(), port: testproc.FreePort(t), java: java, classes: classes}
	if o.tls {
		s.certify()
	}
	t.Cleanup(s.stop)
	s.run()
	return s
}

// within returns the server for a test within the one that has started it, which must not stop it.
func (s *server) within(t *testing.T) *server {
	t.Helper()
	shared := *s
	shared.t = t
	return &shared
}

// addr returns host:port. It stays the same over restarts.
func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) file(name string) string { return filepath.Join(s.dir, name) }

// tlsConfig returns a new configuration for clients, nil without TLS.
func (s *server) tlsConfig() *tls.Config {
	if s.cert == nil {
		return nil
	}
	return &tls.Config{RootCAs: s.cert, MinVersion: tls.VersionTLS12}
}

// starting bounds how many servers start at once, because each keeps a processor busy.
var starting = make(chan struct{}, 2)

// patience is how long a server may take to start. It is long, because the machine can be busy with
// other tests.
const patience = 2 * time.Minute

// run starts the server, with the nodes that it had.
func (s *server) run() {
	s.t.Helper()
	settings := []string{
		"tickTime=2000", "dataDir=" + s.file("data"), "admin.enableServer=false",
		"4lw.commands.whitelist=srvr,cons,dump", "maxClientCnxns=0",
	}
	if s.options.tls {
		settings = append(settings, "secureClientPortAddress=127.0.0.1", fmt.Sprintf("secureClientPort=%d", s.port),
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location="+s.file("key.pem"), "ssl.keyStore.type=PEM", "ssl.clientAuth=none")
	} else {
		settings = append(settings, "clientPortAddress=127.0.0.1", fmt.Sprintf("clientPort=%d", s.port))
	}
	if s.options.brief {
		settings = append(settings, "maxSessionTimeout=4000")
	}
	if s.options.long {
		settings = append(settings, "minSessionTimeout=600000", "maxSessionTimeout=600000")
	}
	must(s.t, os.WriteFile(s.file("zoo.cfg"), []byte(strings.Join(settings, "\n")), 0o600))
	args := []string{
		"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", s.classes,
		"org.apache.zookeeper.server.ZooKeeperServerMain", s.file("zoo.cfg"),
	}
	if s.options.large {
		args = append([]string{"-Djute.maxbuffer=8000000"}, args...)
	}
	starting <- struct{}{}
	defer func() { <-starting }()
	var err error
	s.process, err = testproc.Start(s.file("log"), s.java, args...)
	must(s.t, err)
	if err := testproc.Poll(patience, s.serves); err != nil {
		said, _ := os.ReadFile(s.file("log"))
		s.t.Fatalf("ZooKeeper does not start: %v\n%s", err, said)
	}
	s.connect()
}

// serves returns nil if the server answers calls.
func (s *server) serves() error {
	said, err := s.ask("srvr")
	if err == nil && !strings.Contains(said, "Mode: standalone") {
		err = fmt.Errorf("found %q, expected its mode", said)
	}
	return err
}

// ask sends one of ZooKeeper's commands of four letters.
func (s *server) ask(command string) (string, error) {
	c, err := s.dial("tcp", s.addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	must(s.t, c.SetDeadline(time.Now().Add(5*time.Second)))
	if _, err := io.WriteString(c, command); err != nil {
		return "", err
	}
	said, err := io.ReadAll(c)
	if errors.Is(err, io.ErrUnexpectedEOF) { // it closes TLS without a farewell
		err = nil
	}
	return string(said), err
}

func (s *server) dial(network, addr string, within time.Duration) (net.Conn, error) {
	d := &net.Dialer{Timeout: within}
	if c := s.tlsConfig(); c != nil {
		return tls.DialWithDialer(d, network, addr, c)
	}
	return d.Dial(network, addr)
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect opens the connection of a client that is not ours.
func (s *server) connect() {
	s.t.Helper()
	var err error
	s.client, _, err = zk.Connect([]string{s.addr()}, 20*time.Second, zk.WithLogger(silent{}),
		zk.WithDialer(s.dial), zk.WithMaxConnBufferSize(8<<20))
	must(s.t, err)
	if s.options.username != "" {
		must(s.t, s.client.AddAuth("digest", []byte(s.options.username+":"+s.options.password)))
	}
}

// stop kills the server, if it runs.
func (s *server) stop() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	if s.process != nil {
		if err := s.process.Kill(); err != nil {
			s.t.Error(err)
		}
		s.process = nil
	}
}

// wipe restarts the server without any nodes.
func (s *server) wipe() {
	s.t.Helper()
	s.stop()
	must(s.t, os.RemoveAll(s.file("data")))
	s.run()
}

func (s *server) acl() []zk.ACL {
	if s.options.username == "" {
		return zk.WorldACL(zk.PermAll)
	}
	return zk.DigestACL(zk.PermAll, s.options.username, s.options.password)
}

// put sets the text of a node, or creates it and its parents.
func (s *server) put(name string, text []byte) {
	s.t.Helper()
	_, err := s.client.Set(name, text, -1)
	if errors.Is(err, zk.ErrNoNode) {
		for i, c := range name {
			if c == '/' && i > 0 {
				_, _ = s.client.Create(name[:i], nil, 0, s.acl()) // if absent; any other error comes again below
			}
		}
		_, err = s.client.Create(name, text, 0, s.acl())
	}
	must(s.t, err)
}

func (s *server) remove(name string) {
	s.t.Helper()
	must(s.t, s.client.Delete(name, -1))
}

// certify makes a certificate for 127.0.0.1 that only these tests trust.
func (s *server) certify() {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(s.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(s.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(s.t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), certificate...)
	must(s.t, os.WriteFile(s.file("key.pem"), text, 0o600))
	s.cert = x509.NewCertPool()
	s.cert.AppendCertsFromPEM(certificate)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
