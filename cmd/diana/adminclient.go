// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"
)

// adminTimeout is how long a command waits for an admin listener.
const adminTimeout = 10 * time.Second

// validAdmin returns an error if a URL is not that of an admin listener.
func validAdmin(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return usagef("--admin: %q, expected http://HOST:PORT of an admin listener", u.Redacted())
	}
	return nil
}

// adminAnswer is the answer of an admin listener.
type adminAnswer struct {
	code   int
	status string // with the code
	body   []byte
}

// askAdmin sends a request to an admin listener, with the token unless it is empty. It reads most bytes of the
// body at most. It follows no redirect, because it sends a secret.
func askAdmin(r *http.Request, token string, most int64) (adminAnswer, error) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Timeout:       adminTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	var failed *url.Error
	if errors.As(err, &failed) { // its text repeats the URL
		err = failed.Err
	}
	if err != nil {
		return adminAnswer{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	return adminAnswer{response.StatusCode, response.Status, body}, err
}
