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

// askAdmin sends a request to an admin listener, with the token unless it is empty. It returns the answer with its
// body, of which it has read most bytes at most. It follows no redirect, because it sends a secret.
func askAdmin(r *http.Request, token string, most int64) (answer *http.Response, body []byte, err error) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Timeout:       adminTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err = client.Do(r)
	var failed *url.Error
	if errors.As(err, &failed) { // its text repeats the URL
		err = failed.Err
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	body, err = io.ReadAll(io.LimitReader(answer.Body, most))
	return answer, body, err
}
