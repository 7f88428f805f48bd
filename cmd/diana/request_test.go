// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// requestMain is the program request of the scripts.
func requestMain() {
	if err := request(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// request sends a request, and prints the answer.
func request(w io.Writer, args []string) error {
	flags := flag.NewFlagSet("request", flag.ContinueOnError)
	method := flags.String("X", "GET", "method")
	body := flags.String("d", "", "body")
	header := http.Header{}
	flags.Func("H", "header", func(line string) error {
		name, value, _ := strings.Cut(line, ":")
		header.Add(name, strings.TrimSpace(value))
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := http.NewRequest(*method, flags.Arg(0), strings.NewReader(*body))
	if err != nil {
		return err
	}
	r.Header = header
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	client := http.Client{
		Timeout:   testproc.Patience,
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d\n%s\n%s", answer.StatusCode, headerText(answer.Header), content)
	return err
}

// headerText returns a header with the line ends of a text.
func headerText(h http.Header) string {
	var b strings.Builder
	_ = h.Write(&b)
	return strings.ReplaceAll(b.String(), "\r\n", "\n")
}

// newUpstream returns the server behind the gateway in scripts.
func newUpstream() *httptest.Server {
	var waiting atomic.Int64
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		waiting.Add(1)
		defer waiting.Add(-1)
		select {
		case <-release:
			_, _ = io.WriteString(w, "at last\n")
		case <-r.Context().Done():
		case <-time.After(testproc.Patience):
		}
	})
	mux.HandleFunc("/waiting", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "waiting:", waiting.Load())
	})
	mux.HandleFunc("/release", func(http.ResponseWriter, *http.Request) {
		release <- struct{}{}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "upstream: %s %s %s %q\n%s", r.Method, r.Host, r.RequestURI, body, headerText(r.Header))
	})
	return httptest.NewServer(mux)
}
