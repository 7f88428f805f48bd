// SPDX-License-Identifier: MIT

// Package certificate is the certificate with which the gateway speaks TLS to its clients. It knows two files
// and no server. Open keypair.go first.
package certificate
