// SPDX-License-Identifier: MIT

package follow

import "time"

// Status is what a Follower knows of its sources. It never changes.
type Status struct {
	Reason string // why the configuration in force is the one that it is
	Remote *RemoteStatus

	// Valid reports whether each source could be read when it was last read, and was valid.
	Valid   bool
	Loaded  time.Time // when a configuration was last loaded, by Start at first
	Reloads map[Reload]int64
}

// RemoteStatus is the state of a remote configuration.
type RemoteStatus struct {
	URL     string // without secrets
	Reached bool
	Since   time.Time // of Reached
	Error   string    // why it is not reached
	Refused string    // why what it holds is not in force
}

// Reload is a kind of event: a configuration of a source became active ("ok"), or was not
// valid or could not be read ("error").
type Reload struct{ Source, Result string }

// reloads counts reloads.
type reloads struct {
	now    func() time.Time
	counts map[Reload]int64
	last   time.Time // of the last one without an error
}

// expect counts the reloads of a source from 0, so that the first one is an increase.
func (r *reloads) expect(source string) {
	for _, result := range []string{"ok", "error"} {
		r.counts[Reload{source, result}] += 0
	}
}

func (r *reloads) count(source string, err error) {
	if err != nil {
		r.counts[Reload{source, "error"}]++
		return
	}
	r.counts[Reload{source, "ok"}]++
	r.last = r.now()
}

func (r *remote) status() *RemoteStatus {
	if r == nil {
		return nil
	}
	s := &RemoteStatus{URL: r.where, Reached: r.lost == nil, Since: r.since}
	if r.lost != nil {
		s.Error = r.lost.Error()
	}
	if r.refused != nil {
		s.Refused = r.refused.Error()
	}
	return s
}

// reason returns why the configuration in force is the one that it is.
func (r *remote) reason() string {
	switch {
	case r == nil:
		return "there is no configuration centre"
	case r.refused != nil && r.document != nil:
		return "what the configuration centre holds now is not valid: its last good document serves"
	case r.refused != nil:
		return "what the configuration centre holds is not valid: the local limits serve"
	case r.document == nil && r.lost != nil:
		return "the configuration centre has not been reached: the local limits serve"
	case r.document == nil:
		return "the configuration centre has no document: the local limits serve"
	case r.document.Source != r.where:
		return "the configuration centre has not been reached: its snapshot serves"
	case r.lost != nil:
		return "the configuration centre is out of reach: its last document serves"
	}
	return "the configuration centre wins over the local limits"
}
