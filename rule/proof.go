// SPDX-License-Identifier: MIT

package rule

import "time"

// Proof returns what a valid credential says under a name, such as the account of an API key, or "" if it says
// nothing. It is safe for concurrent use.
type Proof func(name string) string

// CredentialError is why a request is rejected because of its credential. Nothing in it is part of the credential.
type CredentialError struct {
	Status     int           // 401, or 429 after too many failures, or 503 while the keys cannot be had
	Reason     string        // for the client, without the credential
	Missing    bool          // there is none, and the configuration requires one
	RetryAfter time.Duration // of a status other than 401
}

func (e *CredentialError) Error() string { return e.Reason }
