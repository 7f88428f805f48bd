// SPDX-License-Identifier: MIT

package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	if s.options.XDS != nil {
		return s.received, s.version, nil
	}
	files, err := descriptors.Read(s.options.Paths, descriptors.Names{Any: s.options.AnyName, Dots: s.options.DotFiles})
	return files, versionOf(files), err
}

// versionOf returns the version of files.
func versionOf(files []descriptors.File) version {
	h := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(h, "%q %d ", f.Name, len(f.Data)) // a hash has no errors
		_, _ = h.Write(f.Data)
	}
	return version(h.Sum(nil))
}

// parse returns the limits of files.
func (s *RateLimit) parse(files []descriptors.File, v version, settings *config.Config) (*active, error) {
	tree, err := descriptors.Parse(files, config.DefaultVocabulary(), descriptors.Options{Merge: s.options.Merge, Scope: scopeOf(settings)})
	if err != nil {
		return nil, err
	}
	return newActive(tree, v), nil
}

// watchEvery is how often the files and the settings are looked at.
const watchEvery = time.Second

// watch applies changes of the files and of the settings, until Close.
func (s *RateLimit) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopping.Done():
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
	if s.options.XDS == nil || s.Loaded() {
		_ = s.replace(files, v, err, settings) // it logs the error
	}
}

// offer puts files of XDS in force that have no mistake. Otherwise it returns the mistakes, and earlier limits stay.
func (s *RateLimit) offer(files []descriptors.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	settings, v := s.options.Settings(), versionOf(files)
	if s.Loaded() && v == s.version && settings == s.tried {
		s.failed.Store(false)
		return nil
	}
	if err := s.replace(files, v, nil, settings); err != nil {
		return err
	}
	s.tried, s.version, s.received = settings, v, files
	return nil
}

// replace puts files in force that were read with an error or without. The limits in force stay if the new ones have
// mistakes. s.mu is held.
func (s *RateLimit) replace(files []descriptors.File, v version, err error, settings *config.Config) error {
	var a *active
	if err == nil {
		a, err = s.parse(files, v, settings)
	}
	before, was := s.active.Load(), s.settings
	if err == nil {
		err = s.apply(a, settings)
	}
	s.failed.Store(err != nil)
	if f := s.options.OnLoaded; f != nil {
		f(err)
	}
	if err != nil {
		s.options.Logger.Error("descriptors not changed", "error", err)
		return err
	}
	if s.Loaded() {
		s.logChange(before, a, was, settings)
	} else {
		close(s.first)
	}
	s.log(a)
	return nil
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
	if err := s.update(a, settings); err != nil {
		return err
	}
	s.settings = settings
	s.active.Store(a)
	return nil
}

// bring puts the limits that requests have brought in force, beside those of the files. s.mu is held.
func (s *RateLimit) bring() error {
	return s.update(s.active.Load(), s.settings)
}

// update puts limits in force in the limiters, in all or in none. s.mu is held.
func (s *RateLimit) update(a *active, settings *config.Config) error {
	if s.seconds == nil {
		return s.limiter.Update(s.compose(a, settings, false))
	}
	if err := s.seconds.Update(s.compose(a, settings, true)); err != nil {
		return err
	}
	if err := s.limiter.Update(s.compose(a, settings, false)); err != nil {
		return errors.Join(err, s.seconds.Update(s.compose(s.active.Load(), s.settings, true)))
	}
	return nil
}

// compose returns the configuration of a limiter: the settings, and the limits of the files and of
// requests. seconds asks for that of limits per second. s.mu is held.
func (s *RateLimit) compose(a *active, settings *config.Config, seconds bool) *config.Config {
	c := *settings
	c.Warnings, c.Remote = nil, nil // the limiter of the settings logs and follows these
	c.Source, c.Version = s.source(), hex.EncodeToString(a.version[:6])
	c.Limits = slices.Concat(a.tree.Entries(), s.overrides.entries(scopeOf(settings)))
	if s.options.PerSecond != nil {
		c.Limits = slices.DeleteFunc(c.Limits, func(e rule.Entry) bool { return (e.Rules[0].Limit.Unit == time.Second) != seconds })
	}
	if seconds {
		c.Redis = s.options.PerSecond
	}
	if c.Redis != nil {
		redis := *c.Redis
		redis.Prefix += redisPrefix
		c.Redis = &redis
	}
	return &c
}

// source names where the limits come from.
func (s *RateLimit) source() string {
	if x := s.options.XDS; x != nil {
		return x.String()
	}
	return strings.Join(s.options.Paths, " ")
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
