// SPDX-License-Identifier: MIT

package actors

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// certKind finds a client by the certificate that it has shown in the TLS handshake, if the server has verified it.
func certKind() rule.ActorKind {
	return rule.ActorKind{Kind: "cert", Named: true, Proved: true, Find: certValue, Check: func(name string) error {
		if name != "cn" && name != "san" && name != "fingerprint" {
			return errors.New("expected cert:cn, cert:san or cert:fingerprint")
		}
		return nil
	}}
}

// certValue returns the common name of a certificate, the first of its URIs, DNS names and email addresses, or the SHA-256 of the
// whole certificate. A connection can outlive the certificate, which then proves nothing.
func certValue(r *http.Request, name string) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return ""
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if time.Now().After(leaf.NotAfter) {
		return ""
	}
	switch name {
	case "cn":
		return leaf.Subject.CommonName
	case "san":
		return firstSAN(leaf)
	}
	sum := sha256.Sum256(leaf.Raw)
	return hex.EncodeToString(sum[:])
}

func firstSAN(leaf *x509.Certificate) string {
	switch {
	case len(leaf.URIs) > 0:
		return leaf.URIs[0].String()
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0]
	case len(leaf.EmailAddresses) > 0:
		return leaf.EmailAddresses[0]
	}
	return ""
}
