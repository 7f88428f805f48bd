// SPDX-License-Identifier: MIT

package certificate

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Pair is a TLS certificate with its private key, and follows the two files that have them.
//
// It reads both files every second and compares them with what it read before. That finds a file that is
// written in place, a file that is replaced by rename, and a symbolic link that changes anywhere in the path.
// Kubernetes and certbot change links. Rejected: events of the file system. They report a link that
// changes only to a program that watches every folder of the path, and network file systems have none.
//
// certbot replaces the certificate and the key one after the other. So new files are used when two
// readings in a row are alike. While they are broken, the active pair stays.
type Pair struct {
	certFile, keyFile, caFile string // caFile is empty without authorities of clients
	logger                    *slog.Logger
	active                    atomic.Pointer[tls.Certificate]
	clients                   atomic.Pointer[x509.CertPool] // the authorities of clients

	used, seen fileSums // of the files at the last use, also of broken ones, and at the last reading
}

// fileSums are checksums of a certificate's, a key's and the authorities' file. A file that cannot be read has a checksum too.
type fileSums [3][sha256.Size]byte

// Open returns the pair in two files, and the authorities of clients in a third one. caFile may be empty.
func Open(certFile, keyFile, caFile string, logger *slog.Logger) (*Pair, error) {
	p := &Pair{certFile: certFile, keyFile: keyFile, caFile: caFile, logger: logger}
	p.used = p.sums()
	if err := p.load("TLS certificate"); err != nil {
		return nil, err
	}
	if info, err := os.Stat(keyFile); err == nil && info.Mode().Perm()&0o004 != 0 {
		logger.Warn("every user of this machine can read the TLS key", "file", keyFile)
	}
	return p, nil
}

// sums reads both files.
func (p *Pair) sums() (s fileSums) {
	for i, file := range []string{p.certFile, p.keyFile, p.caFile} {
		if file == "" {
			continue
		}
		text, err := readRegular(file)
		if err != nil {
			text = []byte(err.Error())
		}
		s[i] = sha256.Sum256(text)
	}
	return s
}

// readRegular reads a regular file. Another one, such as a pipe, could block the start, and each look at a
// certificate afterwards. It opens the file first, so that nobody can replace it in between.
func readRegular(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", file)
	}
	return io.ReadAll(f)
}

// Follow uses new files until ctx ends.
func (p *Pair) Follow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.look()
		}
	}
}

// look uses the files if they have changed, and no longer change.
func (p *Pair) look() {
	now := p.sums()
	settled := now == p.seen
	p.seen = now
	if now == p.used || !settled {
		return
	}
	p.used = now
	if err := p.load("TLS certificate changed"); err != nil {
		p.logger.Error("TLS certificate not changed", "error", err)
	}
}

// load uses what the files have, all of it or nothing.
func (p *Pair) load(text string) error {
	pair, err := loadKeyPair(p.certFile, p.keyFile)
	if err != nil {
		return err
	}
	if p.caFile != "" {
		pool, err := loadAuthorities(p.caFile)
		if err != nil {
			return err
		}
		p.clients.Store(pool)
	}
	p.use(pair, text)
	return nil
}

// use makes a pair active for the handshakes to come, and logs it.
func (p *Pair) use(pair *tls.Certificate, text string) {
	p.active.Store(pair)
	until := pair.Leaf.NotAfter.UTC().Format(time.RFC3339)
	p.logger.Info(text, "file", p.certFile, "names", strings.Join(pair.Leaf.DNSNames, " "), "not_after", until)
	if why := untimely(pair.Leaf, time.Now()); why != "" {
		p.logger.Warn(why, "file", p.certFile, "not_before", pair.Leaf.NotBefore.UTC().Format(time.RFC3339), "not_after", until)
	}
}
