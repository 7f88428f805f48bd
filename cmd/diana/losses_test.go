// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var losses = flag.Int("losses", 0, "how often TestLosses lets one Redis lose its memory in each way; others do twice. "+
	"0: once, in the fast ways, and only one Redis")

// The limit of each counter, and how much of it is used when Redis loses its memory.
const (
	lossLimit = 1000
	lossUsed  = 700
	lossSaved = 500 // when a copy is made that comes back
	lossOver  = 30  // most that is allowed beyond the limit
	lossSlots = 12
)

// forgetful is Redis that loses its memory.
type forgetful struct {
	way     string // the value of redis in a configuration
	masters func() []*redistest.Server
	replica func(master *redistest.Server) *redistest.Server
	lagging *redistest.Server              // see cutReplica
	promote func(master *redistest.Server) // returns when the replica of a dead master has replaced it
	ready   func()                         // waits until all servers work; nil: there is only one
	move    func(key string)               // to another master; nil: there is none
}

var forgetfuls = []struct {
	name  string
	start func(t *testing.T) *forgetful
}{
	{"Redis", func(t *testing.T) *forgetful { return startForgetful(t, "redis-server") }},
	{"Valkey", func(t *testing.T) *forgetful { return startForgetful(t, "valkey-server") }},
	{"Sentinel", func(t *testing.T) *forgetful {
		s := redistest.StartSentinel(t)
		return &forgetful{
			way:     fmt.Sprintf(`sentinel: {master: %s, addresses: ["%s"]}`, s.MasterName, strings.Join(s.Addrs(), `", "`)),
			masters: func() []*redistest.Server { return []*redistest.Server{s.Master()} },
			replica: func(master *redistest.Server) *redistest.Server {
				if master == s.Nodes[1] {
					return s.Nodes[0]
				}
				return s.Nodes[1]
			},
			promote: func(dead *redistest.Server) { s.WaitFailover(dead) },
			ready:   s.WaitReady,
		}
	}},
	{"Cluster", func(t *testing.T) *forgetful {
		c := redistest.StartCluster(t, 3)
		return &forgetful{
			way:     fmt.Sprintf(`cluster: ["%s"]`, strings.Join(c.Addrs(), `", "`)),
			masters: c.Masters,
			replica: c.Peer,
			promote: func(dead *redistest.Server) { c.WaitFailover(dead) },
			ready:   c.WaitReady,
			move:    func(key string) { c.Move(key) },
		}
	}},
}

// startForgetful starts one server. Its replica replaces it at its own port.
func startForgetful(t *testing.T, program string) *forgetful {
	o := redistest.Options{Program: program}
	master := o.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	var replica *redistest.Server
	return &forgetful{
		way:     fmt.Sprintf("url: %q", master.URL()),
		masters: func() []*redistest.Server { return []*redistest.Server{master} },
		replica: func(*redistest.Server) *redistest.Server {
			o.Args = []string{"--replicaof", host, port}
			replica = o.Start(t)
			testproc.Eventually(t, func() bool { return replica.Info("replication")["master_link_status"] == "up" })
			return replica
		},
		promote: func(*redistest.Server) {
			replica.Must("REPLICAOF", "NO", "ONE")
			replica.Must("CONFIG", "SET", "port", port)
		},
	}
}

// loss is a way in which Redis loses its memory.
type loss struct {
	name   string
	fast   bool
	before func(*forgetful) // after lossSaved requests
	lose   func(*forgetful)
}

var allLosses = []loss{
	{"FLUSHALL", true, nil, func(r *forgetful) { r.each("FLUSHALL") }},
	{"FLUSHDB ASYNC", false, nil, func(r *forgetful) { r.each("FLUSHDB", "ASYNC") }},
	{"killed, back empty", true, nil, (*forgetful).restart},
	{"killed, back with an old copy", false, func(r *forgetful) { r.each("SAVE") }, (*forgetful).restart},
	{"a replica that lags takes over", false, (*forgetful).cutReplica, func(r *forgetful) {
		dead := r.busiest()
		dead.Kill()
		r.lagging.Thaw()
		r.promote(dead)
	}},
}

func (r *forgetful) each(command ...string) {
	for _, s := range r.masters() {
		s.Must(command...)
	}
}

func (r *forgetful) restart() {
	masters := r.masters()
	for _, s := range masters {
		s.Kill()
	}
	for _, s := range masters {
		s.Restart()
	}
}

// cutReplica separates the replica of the busiest master, once it has all.
func (r *forgetful) cutReplica() {
	master := r.busiest()
	r.lagging = r.replica(master)
	redistest.WaitReplica(master)
	r.lagging.Freeze()
	master.Must("CLIENT", "KILL", "TYPE", "replica")
}

// busiest returns the master with the most counters.
func (r *forgetful) busiest() (most *redistest.Server) {
	counters := -1
	for _, s := range r.masters() {
		if n := len(countersIn(s)); n > counters {
			most, counters = s, n
		}
	}
	return most
}

// countersIn returns the keys of the counters that a server has.
func countersIn(s *redistest.Server) (all []string) {
	keys, _ := s.Must("KEYS", "diana:*").([]any)
	for _, k := range keys {
		if name := k.(string); len(name)-strings.LastIndexAny(name, ":}") == 1+22 {
			all = append(all, name)
		}
	}
	return all
}

// stream is requests for one counter.
type stream struct {
	path    string
	shares  []int // of the requests, by gateway
	sent    atomic.Int64
	allowed atomic.Int64
}

// next returns the gateway of the next request.
func (s *stream) next() int {
	all := 0
	for _, n := range s.shares {
		all += n
	}
	at := int(s.sent.Add(1)-1) % all
	for g, n := range s.shares {
		if at < n {
			return g
		}
		at -= n
	}
	panic("unreachable")
}

func (s *stream) ask(t *testing.T, f *fleet, gateway int) bool {
	ok := f.ask(t, gateway, s.path).status == 200
	if ok {
		s.allowed.Add(1)
	}
	return ok
}

// TestLosses uses up limits through three gateways while Redis loses its memory. With -losses it takes minutes:
//
//	go test ./cmd/diana -run TestLosses -v -losses 5 -timeout 60m
func TestLosses(t *testing.T) {
	if testing.Short() && *losses == 0 {
		t.Skip("takes nine seconds of load")
	}
	for _, r := range forgetfuls {
		for _, l := range allLosses {
			times := 1
			switch {
			case *losses == 0 && (!l.fast || r.name != "Redis"):
				continue
			case *losses > 0 && r.name == "Redis":
				times = *losses
			case *losses > 0:
				times = 2
			}
			for i := range times {
				t.Run(fmt.Sprint(r.name, "/", l.name, "/", i+1), func(t *testing.T) {
					if *losses == 0 {
						t.Parallel()
					}
					testLosses(t, r.start(t), l)
				})
			}
		}
	}
}

func testLosses(t *testing.T, r *forgetful, l loss) {
	const clients = 4 // of each counter
	var yaml strings.Builder
	var streams []*stream
	for _, algo := range []string{"W", "TB", "SW", "SL"} {
		for name, shares := range map[string][]int{"even": {1, 1, 1}, "uneven": {98, 1, 1}} {
			s := &stream{path: "/" + algo + "-" + name, shares: shares}
			streams = append(streams, s)
			fmt.Fprintf(&yaml, "- {url: %s, rules: [{unit: 744h, rpu: %d, algo: %s, scope: global}]}\n", s.path, lossLimit, algo)
		}
	}
	fmt.Fprintf(&yaml, "- {url: /slots, rules: [{algo: C, rpu: %d, scope: global}]}\n", lossSlots)
	way := r.way + ", timeout: 500ms"
	if *losses == 0 { // other tests run, and while Redis is late, a share would refuse what Redis has left
		way = r.way + ", " + patient
	}
	var inside, mostInside atomic.Int64
	f := startFleetFor(t, func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slots" {
			n := inside.Add(1)
			defer inside.Add(-1)
			for most := mostInside.Load(); n > most && !mostInside.CompareAndSwap(most, n); {
				most = mostInside.Load()
			}
			time.Sleep(50 * time.Millisecond)
		}
	}, []string{way, way, way}, clients*len(streams), yaml.String())
	stopSlots := make(chan struct{})
	var holding sync.WaitGroup
	for i := range 3 * lossSlots {
		holding.Go(func() {
			for {
				select {
				case <-stopSlots:
					return
				case <-time.After(20 * time.Millisecond):
					f.ask(t, i%3, "/slots")
				}
			}
		})
	}
	defer func() {
		close(stopSlots)
		holding.Wait()
		if n := mostInside.Load(); n > lossSlots+2*(lossSlots/3) {
			t.Errorf("%d requests at once hold the %d slots", n, lossSlots)
		} else {
			t.Logf("at most %d of %d slots at once", n, lossSlots)
		}
	}()

	// each calls do for each stream at the same time, from all its clients.
	each := func(do func(*stream)) {
		var wg sync.WaitGroup
		for _, s := range streams {
			for range clients {
				wg.Go(func() { do(s) })
			}
		}
		wg.Wait()
	}
	until := func(n int64) {
		each(func(s *stream) {
			for s.sent.Load() < n-clients+1 {
				s.ask(t, f, s.next())
			}
		})
		for _, s := range streams {
			for s.sent.Load() < n {
				s.ask(t, f, s.next())
			}
			if got := s.allowed.Load(); got != n {
				t.Fatalf("%s: %d of %d are allowed before the loss", s.path, got, n)
			}
		}
	}
	noticed := make([]int, len(f.gateways)) // losses, before the latest
	known := func(gateway int) int {
		return strings.Count(f.gateways[gateway].log.String(), "Redis lost its data")
	}
	lose := func() {
		for i := range f.gateways {
			noticed[i] = known(i)
		}
		l.lose(r)
	}
	// exhaust sends requests until all gateways use Redis and refuse.
	exhaust := func() {
		settled := make(chan struct{})
		go func() {
			defer close(settled)
			for i := range f.gateways {
				if !testproc.Becomes(func() bool { return known(i) > noticed[i] }) && l.fast {
					t.Errorf("gateway %d does not notice the loss", i)
				}
				f.awaitDegraded(t, i, false)
			}
			time.Sleep(2200 * time.Millisecond) // shares apply no longer
		}()
		each(func(s *stream) {
			for refused := 0; refused < 100 && s.allowed.Load() < 2*lossLimit; {
				if !s.ask(t, f, s.next()) {
					refused++
				} else {
					refused = 0
				}
				select {
				case <-settled:
				default:
					refused = 0
				}
			}
		})
	}
	until(lossSaved)
	if l.before != nil {
		l.before(r)
	}
	until(lossUsed)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range streams {
		wg.Go(func() {
			last := map[int]time.Time{}
			for i := 0; ; i++ {
				select {
				case <-time.After(10 * time.Millisecond):
				case <-stop:
					return
				}
				g := i % 3
				if s.shares[0] > 1 { // each has used the counter in the last second
					g = 0
					for other := range s.shares[1:] {
						if time.Since(last[other+1]) > 700*time.Millisecond {
							g = other + 1
						}
					}
				}
				last[g] = time.Now()
				s.sent.Add(1)
				s.ask(t, f, g)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	lose()
	close(stop)
	wg.Wait()
	exhaust()
	worst := map[string]int64{}
	for _, s := range streams {
		worst[s.path] = s.allowed.Load() - lossLimit
		if n := s.allowed.Load(); n > lossLimit+lossOver || n < lossLimit-lossOver {
			t.Errorf("%s: %d are allowed, want %d", s.path, n, lossLimit)
		}
	}
	t.Logf("beyond the limit: %v", worst)
	if l.name != "FLUSHALL" || *losses == 0 {
		return
	}
	for range 3 {
		before := map[*stream]int64{}
		for _, s := range streams {
			before[s] = s.allowed.Load()
		}
		lose()
		exhaust()
		var more []int64
		for _, s := range streams {
			n := s.allowed.Load() - before[s]
			if n > lossOver {
				t.Errorf("%s: %d more are allowed after %s of a used up limit", s.path, n, l.name)
			}
			more = append(more, n)
		}
		t.Logf("of a used up limit: %v", more)
	}
}

// lossFleet is three gateways that count one path by W, and one Redis.
func lossFleet(t *testing.T) (*redistest.Server, *fleet) {
	r := redistest.Start(t)
	way := fmt.Sprintf("url: %q, timeout: 500ms", r.URL())
	return r, startFleet(t, []string{way, way, way}, 16, lossYAML)
}

const lossYAML = "- {url: /, rules: [{algo: W, unit: day, rpu: 1000, scope: global}]}\n"

// spend sends n requests to one gateway, by so many clients, and returns how many it allows.
func (f *fleet) spend(t *testing.T, gateway, n, clients int) int {
	var sent, allowed atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for sent.Add(1) <= int64(n) {
				if f.ask(t, gateway, "/").status == 200 {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(allowed.Load())
}

// inTurn sends n requests, to one gateway after another, and returns how many they allow.
func (f *fleet) inTurn(t *testing.T, n int) (allowed int) {
	for i := range n {
		allowed += f.spend(t, i%3, 1, 1)
	}
	return allowed
}

// useUp waits until all gateways use Redis, and shares apply no longer. Then it returns how many requests they allow.
func (f *fleet) useUp(t *testing.T) (allowed int) {
	for range 2 { // the first requests may notice the loss
		time.Sleep(time.Second)
		for i := range f.gateways {
			f.awaitDegraded(t, i, false)
		}
		time.Sleep(2200 * time.Millisecond)
		for i := range f.gateways {
			allowed += f.spend(t, i, 1500, 8)
		}
	}
	return allowed
}

// TestLossAttacks attacks the moments around a loss. It runs with -losses.
func TestLossAttacks(t *testing.T) {
	for _, attack := range []struct {
		name string
		most int
		make func(t *testing.T, r *redistest.Server, f *fleet) (allowed int)
	}{
		{"one gateway never saw the counter", 333, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.spend(t, 0, 350, 4) + f.spend(t, 1, 350, 4)
			r.Must("FLUSHALL")
			return n + f.spend(t, 2, 3000, 16)
		}},
		{"one gateway has the older state", 333, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.spend(t, 1, 20, 4) + f.spend(t, 0, 680, 4)
			r.Must("FLUSHALL")
			return n + f.spend(t, 1, 3000, 16)
		}},
		{"reload", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.inTurn(t, 700)
			var wg sync.WaitGroup
			for _, g := range f.gateways {
				wg.Go(func() {
					way, _, _ := strings.Cut(string(mustReadFile(t, g.file)), "\n")
					g.reload(t, way+"\nlimits:\n- {url: /other, rules: [{unit: day, rpu: 7}]}\n"+lossYAML)
				})
			}
			r.Must("FLUSHALL")
			n += f.inTurn(t, 100)
			wg.Wait()
			return n
		}},
		{"reload changes the limit", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.inTurn(t, 700)
			r.Must("FLUSHALL")
			for _, g := range f.gateways {
				g.reload(t, strings.Replace(string(mustReadFile(t, g.file)), "rpu: 1000", "rpu: 1001", 1))
			}
			return n
		}},
		{"a frozen gateway comes back after 3 s", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			return frozenLoss(t, r, f, 3*time.Second)
		}},
		{"a frozen gateway comes back after 12 s", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			return frozenLoss(t, r, f, 12*time.Second)
		}},
		{"two losses at once", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.inTurn(t, 700)
			for i := range 4 {
				r.Must("FLUSHALL")
				n += f.spend(t, i%3, 10, 2)
			}
			return n
		}},
		{"a loss half a second after a loss", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.inTurn(t, 700)
			for i := range 4 {
				r.Must("FLUSHALL")
				n += f.spend(t, i%3, 10, 2)
				time.Sleep(500 * time.Millisecond)
			}
			return n
		}},
		{"killed twice", 30, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.inTurn(t, 700)
			for range 3 {
				r.Kill()
				n += f.spend(t, 0, 5, 2) + f.spend(t, 1, 5, 2)
				r.Restart()
				n += f.spend(t, 2, 5, 2) + f.spend(t, 1, 5, 2)
				time.Sleep(300 * time.Millisecond)
			}
			return n
		}},
		{"a key deleted by hand", 700, func(t *testing.T, r *redistest.Server, f *fleet) int {
			n := f.inTurn(t, 700)
			for _, key := range countersIn(r) {
				r.Must("DEL", key)
			}
			return n
		}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			if *losses == 0 {
				t.Skip("runs with -losses")
			}
			t.Parallel()
			r, f := lossFleet(t)
			n := attack.make(t, r, f)
			before := n
			n += f.useUp(t)
			t.Logf("%s: %d allowed before the end, %d in all", attack.name, before, n)
			if n > lossLimit+attack.most || n < lossLimit-lossOver {
				t.Errorf("%d are allowed, want at most %d", n, lossLimit+attack.most)
			}
		})
	}
}

func frozenLoss(t *testing.T, r *redistest.Server, f *fleet, d time.Duration) int {
	n := f.spend(t, 0, 10, 1) + f.spend(t, 2, 10, 1) + f.spend(t, 1, 680, 4)
	n += f.spend(t, 0, 1, 1) + f.spend(t, 2, 1, 1) // each has used it
	n += f.spend(t, 1, 8, 1)
	if err := f.gateways[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.Must("FLUSHALL")
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		n += f.spend(t, 0, 1, 1) + f.spend(t, 2, 1, 1)
		time.Sleep(100 * time.Millisecond)
	}
	if err := f.gateways[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	return n + f.spend(t, 1, 2000, 8)
}

func mustReadFile(t *testing.T, file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
