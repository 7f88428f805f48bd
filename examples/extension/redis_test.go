// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// server is a Redis of a test's own, which ends with the test.
type server struct {
	url  string
	stop func()
}

// startRedis starts a Redis on a free port. Without redis-server the test is skipped, or fails
// if the environment has CI.
func startRedis(t *testing.T) server {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("this test needs redis-server")
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 5 { // the port can be taken by someone else before it is used
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().(*net.TCPAddr)
		l.Close()
		cmd := exec.Command(binary, "--bind", "127.0.0.1", "--port", fmt.Sprint(address.Port),
			"--save", "", "--appendonly", "no", "--dir", t.TempDir())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // killed, which is no news
			close(ended)
		}()
		stop := func() {
			_ = cmd.Process.Kill() // an error says that it has ended
			<-ended
		}
		t.Cleanup(stop)
		if answers(address.String(), ended) {
			return server{url: "redis://" + address.String(), stop: stop}
		}
	}
	t.Fatal("redis-server does not answer")
	return server{}
}

// answers waits until a port takes connections, or the process behind it has ended.
func answers(address string, ended <-chan struct{}) bool {
	for range 1000 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen within 20 s")
		}
	}
}
