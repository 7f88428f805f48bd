// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/testproc"
)

// WaitReplica waits until a server's replica has applied all changes up to now.
func WaitReplica(s *Server) {
	s.t.Helper()
	goal := s.Info("replication")
	await(s.t, testproc.Patience, "a replica that has everything", func() error {
		info, err := s.info("replication")
		if err != nil {
			return err
		}
		replica, err := replicaOf(s, info["slave0"])
		if err != nil {
			return err
		}
		if info, err = replica.info("replication"); err != nil {
			return err
		}
		want, err := strconv.Atoi(goal["master_repl_offset"])
		got, err2 := strconv.Atoi(info["slave_repl_offset"])
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if info["master_replid"] != goal["master_replid"] || got < want {
			return fmt.Errorf("%s is at %d of %s, want %d of %s", replica.Addr(),
				got, info["master_replid"], want, goal["master_replid"])
		}
		return nil
	})
}

// replicaOf returns the replica of a server that INFO describes as ip=127.0.0.1,port=12345,...
func replicaOf(s *Server, text string) (*Server, error) {
	for field := range strings.SplitSeq(text, ",") {
		if value, ok := strings.CutPrefix(field, "port="); ok {
			port, err := strconv.Atoi(value)
			return &Server{t: s.t, recipe: s.recipe, port: port}, err
		}
	}
	return nil, fmt.Errorf("%s has no replica", s.Addr())
}

// replicates returns nil if a server is a master with an up-to-date replica, or such a replica.
func replicates(s *Server) error {
	info, err := s.info("replication")
	switch {
	case err != nil:
		return err
	case info["role"] == "master" && !strings.Contains(info["slave0"], "state=online"):
		return fmt.Errorf("%s has no replica", s.Addr())
	case info["role"] == "slave" && info["master_link_status"] != "up":
		return fmt.Errorf("%s has no master", s.Addr())
	}
	return nil
}
