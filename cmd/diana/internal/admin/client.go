// SPDX-License-Identifier: MIT

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// adminTimeout is how long a command waits for an admin listener.
const adminTimeout = 10 * time.Second

// Address is the URL of an admin listener.
type Address struct{ URL *url.URL }

// UnmarshalText reads the value of --admin. HOST:PORT stands for http://HOST:PORT.
func (a *Address) UnmarshalText(text []byte) error {
	s := string(text)
	if !strings.Contains(s, "/") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("expected http://HOST:PORT of an admin listener") // the URL may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
		return fmt.Errorf("%q, expected http://HOST:PORT of an admin listener", u.Redacted())
	}
	a.URL = u
	return nil
}

// Answer is the answer of an admin listener.
type Answer struct {
	Code   int
	Status string // with the code
	Body   []byte
}

// Ask sends a request to an admin listener, with the token unless it is empty. It reads most bytes of the
// body at most. It follows no redirect, because it sends a secret.
func Ask(r *http.Request, token string, most int64) (Answer, error) {
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
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	return Answer{response.StatusCode, response.Status, body}, err
}

// Post sends a value to an admin listener, and reads its answer into another one.
func Post(ctx context.Context, to *url.URL, token string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := Ask(r, token, 1<<20)
	if err != nil {
		return err
	}
	if got.Code != http.StatusOK {
		return adminError(got.Status, got.Body)
	}
	return json.Unmarshal(got.Body, answer)
}

// adminError returns the error of an answer: the detail of the problem in its body, if there is one.
func adminError(status string, body []byte) error {
	var problem struct{ Detail string }
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		return errors.New(status)
	}
	return fmt.Errorf("%s: %s", status, command.Legible(strings.TrimSpace(problem.Detail)))
}
