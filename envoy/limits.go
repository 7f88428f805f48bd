// SPDX-License-Identifier: MIT

package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	algorithms "github.com/diana-limiter/diana/limit"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
	"github.com/diana-limiter/diana/internal/descriptors"
	"github.com/diana-limiter/diana/rule"
)

// active is the limits in force. It never changes.
type active struct {
	tree    *descriptors.Tree
	version version // of the files
	since   time.Time
	limits  map[*descriptors.Limit]*limit
}

// limit is the limit of a descriptor: one of the files, or an override that the request has brought.
type limit struct {
	*descriptors.Limit        // nil for an override
	rule               string // its name; empty for an unlimited one
	current            *rls.RateLimitResponse_RateLimit
}

func newActive(tree *descriptors.Tree, v version) *active {
	a := &active{tree, v, time.Now(), make(map[*descriptors.Limit]*limit, len(tree.Limits()))}
	for _, l := range tree.Limits() {
		a.limits[l] = &limit{l, l.Rule.Name, &rls.RateLimitResponse_RateLimit{
			Name: l.Name, RequestsPerUnit: l.RequestsPerUnit, Unit: rls.RateLimitResponse_RateLimit_Unit(l.Unit),
		}}
	}
	return a
}

// version tells the contents of files from others.
type version [sha256.Size]byte

// read reads the files, and returns their version also if one cannot be read.
func (s *RateLimit) read() ([]descriptors.File, version, error) {
	files, err := descriptors.Read(s.options.Paths)
	h := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(h, "%q %d ", f.Name, len(f.Data)) // a hash has no errors
		_, _ = h.Write(f.Data)
	}
	return files, version(h.Sum(nil)), err
}

// parse returns the limits of files, whose version s.version is.
func (s *RateLimit) parse(files []descriptors.File, settings *config.Config) (*active, error) {
	tree, err := descriptors.Parse(files, config.DefaultVocabulary(), descriptors.Options{Merge: s.options.Merge, Scope: scopeOf(settings)})
	if err != nil {
		return nil, err
	}
	return newActive(tree, s.version), nil
}

// watchEvery is how often the files and the settings are looked at.
const watchEvery = time.Second

// watch applies changes of the files and of the settings, until Close.
func (s *RateLimit) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.Reload()
		}
	}
}

// Failed reports whether the files were last read without success, so that earlier limits are in force.
func (s *RateLimit) Failed() bool { return s.failed.Load() }

// Reload applies changes of the files and of the settings now. The limits in force stay if the new ones
// have mistakes; the log says so once.
func (s *RateLimit) Reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	settings := s.options.Settings()
	files, v, err := s.read()
	unread := ""
	if err != nil {
		unread = err.Error()
	}
	if settings == s.tried && v == s.version && unread == s.unread {
		return
	}
	s.tried, s.version, s.unread = settings, v, unread
	var a *active
	if err == nil {
		a, err = s.parse(files, settings)
	}
	before, was := s.active.Load(), s.settings
	if err == nil {
		err = s.apply(a, settings)
	}
	if s.failed.Store(err != nil); err != nil {
		s.options.Logger.Error("descriptors not changed", "error", err)
		return
	}
	s.logChange(before, a, was, settings)
	s.log(a)
}

// logChange logs how the limits and the settings in force differ from those before.
func (s *RateLimit) logChange(before, a *active, was, settings *config.Config) {
	old, now := *was, *settings
	old.Limits, now.Limits = nil, nil // those of the other limiter
	changes := append(diff.Configs(&old, &now), a.tree.Changes(before.tree)...)
	c := s.limiter.Config()
	s.options.Logger.Info("configuration changed", "source", c.Source, "version", c.Version, "rules", len(c.Limits), "changes", changes)
}

// log logs what is in force, and what its author probably did not mean.
func (s *RateLimit) log(a *active) {
	for _, w := range a.tree.Warnings {
		s.options.Logger.Warn("descriptors", "warning", w.String())
	}
	s.options.Logger.Info("descriptors", "domains", a.tree.Domains(), "limits", len(a.limits))
}

// apply puts limits in force. s.mu is held.
func (s *RateLimit) apply(a *active, settings *config.Config) error {
	if err := s.limiter.Update(s.compose(a, settings)); err != nil {
		return err
	}
	s.settings = settings
	s.active.Store(a)
	return nil
}

// bring puts the limits that requests have brought in force, beside those of the files. s.mu is held.
func (s *RateLimit) bring() error {
	return s.limiter.Update(s.compose(s.active.Load(), s.settings))
}

// compose returns the configuration of the limiter: the settings, and the limits of the files and of
// requests. s.mu is held.
func (s *RateLimit) compose(a *active, settings *config.Config) *config.Config {
	c := *settings
	c.Warnings, c.Remote = nil, nil // the limiter of the settings logs and follows these
	c.Source, c.Version = strings.Join(s.options.Paths, " "), hex.EncodeToString(a.version[:6])
	c.Limits = slices.Concat(a.tree.Entries(), s.overrides.entries(scopeOf(settings)))
	if c.Redis != nil {
		redis := *c.Redis
		redis.Prefix += redisPrefix
		c.Redis = &redis
	}
	return &c
}

// scopeOf returns the scope of limits that do not name one.
func scopeOf(settings *config.Config) rule.Scope {
	if settings.Redis != nil {
		return rule.Global
	}
	return rule.Local
}

// override is a limit that requests bring in place of one of the files.
type override struct {
	n    uint32
	unit descriptors.Unit
}

// overrides are the limits that requests have brought, in the order in which they came.
type overrides []override

// mostOverrides is how many different limits of requests are in force. One more replaces the oldest,
// whose counters stay.
const mostOverrides = 256

func (o override) name() string { return fmt.Sprintf("override %d/%s", o.n, o.unit) }

// entries returns an entry for each override.
func (list overrides) entries(scope rule.Scope) []rule.Entry {
	entries := make([]rule.Entry, len(list))
	for i, o := range list {
		entries[i] = rule.Entry{
			// No domain has this path: a slash in a domain is escaped twice.
			URL: rule.Pattern{Path: fmt.Sprintf("/%%2Foverride/%s/%d", o.unit, o.n)},
			Rules: []rule.Rule{{
				Name: o.name(), Actor: []rule.Actor{{Kind: "header", Name: "Descriptor"}}, Algorithm: algorithms.FixedWindow(),
				Limit: algorithms.Limit{N: int64(o.n), Unit: o.unit.Duration()}, Scope: scope,
			}},
		}
	}
	return entries
}

// override returns the limit that a request has brought. The first request with a limit puts it in force.
func (s *RateLimit) override(of *common.RateLimitDescriptor_RateLimitOverride) (*limit, error) {
	o := override{of.GetRequestsPerUnit(), descriptors.Unit(of.GetUnit())}
	if o.unit.Duration() == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "limit.unit: expected one of SECOND to YEAR, found %v", of.GetUnit())
	}
	if m := of.GetUnitMultiplier(); m != nil && m.GetValue() > 1 {
		return nil, status.Errorf(codes.InvalidArgument, "limit.unit_multiplier: expected 1, found %d", m.GetValue())
	}
	if l, ok := s.brought.Load(o); ok {
		return l.(*limit), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.brought.Load(o); ok {
		return l.(*limit), nil
	}
	before := s.overrides
	if s.overrides = append(slices.Clone(before), o); len(s.overrides) > mostOverrides {
		s.brought.Delete(s.overrides[0])
		s.overrides = s.overrides[1:]
	}
	if err := s.bring(); err != nil {
		s.overrides = before
		return nil, status.Error(codes.Internal, "limit: "+err.Error())
	}
	l := &limit{rule: o.name(), current: &rls.RateLimitResponse_RateLimit{
		RequestsPerUnit: o.n, Unit: rls.RateLimitResponse_RateLimit_Unit(o.unit),
	}}
	s.brought.Store(o, l)
	return l, nil
}
