// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Sentinel is a master and a replica, watched by three Sentinels.
type Sentinel struct {
	MasterName string
	Nodes      []*Server // the first one began as the master
	Sentinels  []*Server

	t testing.TB
}

// StartSentinel starts the five servers and waits until they know each other. A master that fails is
// replaced after two seconds.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	return Options{}.StartSentinel(t)
}

func newSentinel(t testing.TB, o Options) *Sentinel {
	t.Helper()
	r := newRecipe(t, o)
	master := r.server(t)
	port := strconv.Itoa(master.port)
	replica := r.server(t, "--replicaof", "127.0.0.1", port)
	s := &Sentinel{MasterName: "diana-master", Nodes: []*Server{master, replica}, t: t}
	await(t, agreement, "replication", func() error {
		return errors.Join(replicates(master), replicates(replica))
	})
	settings := []string{
		"--sentinel", "monitor", s.MasterName, "127.0.0.1", port, "2",
		"--sentinel", "down-after-milliseconds", s.MasterName, "1000",
		"--sentinel", "failover-timeout", s.MasterName, "4000",
	}
	if o.Password != "" {
		settings = append(settings, "--sentinel", "auth-pass", s.MasterName, o.Password)
	}
	if o.Username != "" {
		settings = append(settings, "--sentinel", "auth-user", s.MasterName, o.Username)
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, r.sentinel(t, settings...))
	}
	s.WaitReady()
	return s
}

// Addrs returns host:port of every Sentinel.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// Master returns the node that the first reachable Sentinel names as the master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		if !sentinel.up() {
			continue
		}
		master, err := s.namedBy(sentinel)
		if err != nil {
			s.t.Fatalf("redistest: %v", err)
		}
		return master
	}
	s.t.Fatal("redistest: no Sentinel is up")
	return nil
}

// WaitFailover waits until every reachable Sentinel has replaced a master that was killed or frozen by the
// other node. It returns the new master.
func (s *Sentinel) WaitFailover(dead *Server) *Server {
	s.t.Helper()
	heir := s.Nodes[0]
	if dead == heir {
		heir = s.Nodes[1]
	}
	await(s.t, agreement, "failover by Sentinel", func() error {
		for _, sentinel := range s.Sentinels {
			if !sentinel.up() {
				continue
			}
			if master, err := s.namedBy(sentinel); err != nil {
				return err
			} else if master != heir {
				return fmt.Errorf("%s still names %s", sentinel.Addr(), master.Addr())
			}
		}
		info, err := heir.info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("%s is a %s", heir.Addr(), info["role"])
		}
		return err
	})
	return heir
}

// WaitReady waits after a restart or thaw until all servers are up, the master has its replica, and every
// Sentinel knows it.
func (s *Sentinel) WaitReady() {
	s.t.Helper()
	await(s.t, agreement, "readiness of the Sentinels", func() error {
		for _, sentinel := range s.Sentinels {
			if err := s.settled(sentinel); err != nil {
				return fmt.Errorf("to %s: %w", sentinel.Addr(), err)
			}
		}
		return errors.Join(replicates(s.Nodes[0]), replicates(s.Nodes[1]))
	})
}

// settled returns nil if a Sentinel knows all servers and none counts as down.
func (s *Sentinel) settled(sentinel *Server) error {
	known := 0
	for _, kind := range []struct{ list, flags string }{
		{"MASTERS", "master"}, {"REPLICAS", "slave"}, {"SENTINELS", "sentinel"},
	} {
		command := []string{"SENTINEL", kind.list}
		if kind.list != "MASTERS" {
			command = append(command, s.MasterName)
		}
		reply, err := sentinel.Do(command...)
		if err != nil {
			return err
		}
		list, _ := reply.([]any)
		for _, item := range list {
			known++
			fields := map[string]string{}
			pairs, _ := item.([]any)
			for i := 0; i+1 < len(pairs); i += 2 {
				name, _ := pairs[i].(string)
				fields[name], _ = pairs[i+1].(string)
			}
			// The Sentinel may have said long ago that the master is down.
			if strings.TrimSuffix(fields["flags"], ",master_down") != kind.flags {
				return fmt.Errorf("port %s is %s", fields["port"], fields["flags"])
			}
			if status, ok := fields["master-link-status"]; ok && status != "ok" {
				return fmt.Errorf("the master of port %s is %s", fields["port"], status)
			}
		}
	}
	if want := len(s.Nodes) + len(s.Sentinels) - 1; known != want {
		return fmt.Errorf("%d servers are known, want %d", known, want)
	}
	return nil
}

func (s *Sentinel) namedBy(sentinel *Server) (*Server, error) {
	reply, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
	if err != nil {
		return nil, err
	}
	addr, _ := reply.([]any)
	for _, node := range s.Nodes {
		if len(addr) == 2 && addr[1] == strconv.Itoa(node.port) {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%s names an unknown master: %v", sentinel.Addr(), reply)
}
