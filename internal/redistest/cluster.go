// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Cluster is a Redis Cluster of masters with one replica each.
type Cluster struct {
	// Nodes has first the nodes that began as masters, then, in the same order, their replicas.
	Nodes []*Server

	t   testing.TB
	ids []string // of Nodes
}

// slots is the number of hash slots of a Cluster.
const slots = 16384

// StartCluster starts a Cluster and waits until it is ready. A master that fails is replaced after two or
// three seconds. "--cluster-node-timeout" in the Args of Options changes that; here it is 1000
// milliseconds.
func StartCluster(t testing.TB, masters int) *Cluster {
	t.Helper()
	return Options{}.StartCluster(t, masters)
}

func newCluster(t testing.TB, o Options, masters int) *Cluster {
	t.Helper()
	r := newRecipe(t, o)
	c := &Cluster{t: t}
	for range 2 * masters {
		s := r.server(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
		id, _ := s.Must("CLUSTER", "MYID").(string)
		c.Nodes, c.ids = append(c.Nodes, s), append(c.ids, id)
	}
	for i, s := range c.Nodes {
		s.Must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			first, next := i*slots/masters, (i+1)*slots/masters
			s.Must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(next-1))
		}
	}
	// Every node meets every other, which is faster than gossip. On a busy machine that can take longer than a
	// second. Then the node gives up, and must be told again.
	await(t, agreement, "nodes that know each other", func() (unknown error) {
		for i, s := range c.Nodes {
			_, err := c.seenBy(s)
			if err == nil {
				continue
			}
			unknown = err
			for j, other := range c.Nodes {
				if i != j {
					s.Must("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.port+testproc.PeerOffset))
				}
			}
		}
		return unknown
	})
	for i, s := range c.Nodes[masters:] {
		await(t, agreement, "a replica's knowledge of its master", func() error {
			_, err := s.Do("CLUSTER", "REPLICATE", c.ids[i])
			return err
		})
	}
	c.WaitReady()
	return c
}

// Addrs returns host:port of every node.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

func addrs(servers []*Server) []string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Master returns the master of a key according to the first node that is up.
func (c *Cluster) Master(key string) *Server {
	c.t.Helper()
	for _, s := range c.Nodes {
		if !s.up() {
			continue
		}
		slot, _ := s.Must("CLUSTER", "KEYSLOT", key).(int64)
		nodes, err := c.seenBy(s)
		if err != nil {
			c.t.Fatalf("redistest: %v", err)
		}
		for i, node := range nodes {
			if node.owns(int(slot)) {
				return c.Nodes[i]
			}
		}
		c.t.Fatalf("redistest: no one has slot %d of the key %s", slot, key)
	}
	c.t.Fatal("redistest: no node of the Cluster is up")
	return nil
}

// Masters returns the nodes that have slots according to the first node that is up.
func (c *Cluster) Masters() (all []*Server) {
	c.t.Helper()
	for _, s := range c.Nodes {
		if !s.up() {
			continue
		}
		nodes, err := c.seenBy(s)
		if err != nil {
			c.t.Fatalf("redistest: %v", err)
		}
		for i, node := range nodes {
			if len(node.slots) > 0 {
				all = append(all, c.Nodes[i])
			}
		}
		return all
	}
	c.t.Fatal("redistest: no node of the Cluster is up")
	return nil
}

// Peer returns the other of two nodes that began as master and replica.
func (c *Cluster) Peer(node *Server) *Server {
	c.t.Helper()
	for i, s := range c.Nodes {
		if s == node {
			return c.Nodes[(i+len(c.Nodes)/2)%len(c.Nodes)]
		}
	}
	c.t.Fatal("redistest: not a node of this Cluster")
	return nil
}

// Move moves the hash slot of a key, with all its keys, to another master, and returns that master. The
// masters know it at once, the other nodes later.
func (c *Cluster) Move(key string) *Server {
	c.t.Helper()
	from := c.Master(key)
	slot := strconv.FormatInt(from.Must("CLUSTER", "KEYSLOT", key).(int64), 10)
	masters := c.Masters()
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	id := func(s *Server) string { return c.ids[slices.Index(c.Nodes, s)] }
	do := func(s *Server, command ...string) (reply any) { // on a busy machine, the Cluster can be down for a moment
		await(c.t, agreement, "move of a slot", func() (err error) { reply, err = s.Do(command...); return err })
		return reply
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	for {
		keys, _ := do(from, "CLUSTER", "GETKEYSINSLOT", slot, "1000").([]any)
		if len(keys) == 0 {
			break
		}
		for _, k := range keys {
			do(from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.port), fmt.Sprint(k), "0", "5000")
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	do(from, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	return to
}

// WaitFailover waits until for every node that is up, the Peer has replaced a master that was killed or
// frozen, and the Cluster works again. It returns the new master.
func (c *Cluster) WaitFailover(dead *Server) *Server {
	c.t.Helper()
	heir := c.Peer(dead)
	await(c.t, agreement, "failover of the Cluster", func() error {
		return c.everywhere(func(nodes []clusterNode) error {
			for i, s := range c.Nodes {
				switch {
				case s == dead && len(nodes[i].slots) > 0:
					return errors.New("the dead master still has its slots")
				case s == heir && len(nodes[i].slots) == 0:
					return errors.New("its replica has no slots yet")
				}
			}
			return nil
		})
	})
	return heir
}

// WaitReady waits after a restart or thaw until all nodes are up and agree on that, and every master has
// its replica.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	await(c.t, agreement, "readiness of the Cluster", func() error {
		err := c.everywhere(func(nodes []clusterNode) error {
			masters := 0
			for i, node := range nodes {
				if node.state != "connected" || strings.Contains(node.flags, "fail") {
					return fmt.Errorf("%s is %s, %s", c.Nodes[i].Addr(), node.state, node.flags)
				}
				if strings.Contains(node.flags, "master") {
					masters++
				}
			}
			if want := len(nodes) / 2; masters != want {
				return fmt.Errorf("%d masters, want %d", masters, want)
			}
			return nil
		})
		for _, s := range c.Nodes {
			err = errors.Join(err, replicates(s))
		}
		return err
	})
}

// everywhere returns nil if every node that is up reports a working Cluster, and check accepts what the
// node sees.
func (c *Cluster) everywhere(check func([]clusterNode) error) error {
	for _, s := range c.Nodes {
		if !s.up() {
			continue
		}
		info, err := s.Do("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if text, _ := info.(string); !strings.Contains(text, "cluster_state:ok\r\n") ||
			!strings.Contains(text, fmt.Sprintf("cluster_slots_ok:%d\r\n", slots)) {
			return fmt.Errorf("%s says:\n%s", s.Addr(), text)
		}
		nodes, err := c.seenBy(s)
		if err == nil {
			err = check(nodes)
		}
		if err != nil {
			return fmt.Errorf("to %s: %w", s.Addr(), err)
		}
	}
	return nil
}

// clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	flags, state string
	slots        [][2]int // first and last
}

func (n clusterNode) owns(slot int) bool {
	for _, r := range n.slots {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

// seenBy returns what a node knows about each of c.Nodes.
func (c *Cluster) seenBy(s *Server) ([]clusterNode, error) {
	reply, err := s.Do("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	seen := map[string]clusterNode{}
	for line := range strings.Lines(text) {
		// id addr flags master ping pong epoch state slot slot-slot ...
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("a line of CLUSTER NODES: %q", line)
		}
		node := clusterNode{flags: f[2], state: f[7]}
		for _, word := range f[8:] {
			first, last, ranges := strings.Cut(word, "-")
			if !ranges {
				last = first
			}
			a, errA := strconv.Atoi(first)
			b, errB := strconv.Atoi(last)
			if errA == nil && errB == nil { // otherwise a slot that is being moved, in brackets
				node.slots = append(node.slots, [2]int{a, b})
			}
		}
		seen[f[0]] = node
	}
	nodes := make([]clusterNode, len(c.Nodes))
	for i, id := range c.ids {
		node, ok := seen[id]
		if !ok {
			return nil, fmt.Errorf("%s does not know %s yet", s.Addr(), c.Nodes[i].Addr())
		}
		nodes[i] = node
	}
	return nodes, nil
}
