// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/diana-limiter/diana/internal/descriptors"
)

// difference is a difference that the table "What differs" of the migration guide declares.
type difference int

const (
	errorCodes difference = iota
	manyDescriptors
	largeHits
	multiplier
	equalDescriptors
	refund
	brought
	joined
	quotaReset
	zeroReset
	zeroLooks
	echo
	differences
)

var differenceNames = [differences]string{
	errorCodes:       "an invalid request has another gRPC code",
	manyDescriptors:  "too many descriptors or entries",
	largeHits:        "hits of a descriptor above 2^32-1",
	multiplier:       "a limit that a request brings, with unit_multiplier",
	equalDescriptors: "two equal descriptors in one request",
	refund:           "is_negative_hits",
	brought:          "a limit that a request brings counts together with others",
	joined:           "descriptors that are equal when joined with \"_\"",
	quotaReset:       "quota_mode over the limit has no time until reset",
	zeroReset:        "requests_per_unit of 0: the time until reset is the whole unit",
	zeroLooks:        "requests_per_unit of 0 and no hits: over the limit",
	echo:             "metadata that repeat the request",
}

// none means that a counter does not differ.
const none difference = -1

// counter is what the comparison knows about one counter of envoyproxy/ratelimit, which it names by the
// texts of a descriptor, joined.
type counter struct {
	owner   string     // the limit and the key by which Diana counts; two owners are a difference
	differs difference // that its counts have; none in most cases
	unequal time.Time  // until then the programs counted a request in different windows
}

// comparison compares the answers to the requests of one asker.
type comparison struct {
	tree     *descriptors.Tree
	original bool // Diana tells what envoyproxy/ratelimit tells besides the statuses
	counters map[string]*counter
	*tally
}

// tally counts what was compared. Any goroutine may use it.
type tally struct {
	mu        sync.Mutex
	declared  [differences]int // in statuses, or in whole calls that a program rejects
	statuses  int              // that were compared and equal
	limited   int              // of these, those with a limit
	over      int              // of these, those over the limit
	straddled int              // that were not compared, because a window had ended

	fields     int // equal fields for clients
	violations int // equal metadata with descriptors over a limit with quota_mode
}

func (c *comparison) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *comparison) declare(d difference) { c.count(&c.declared[d]) }

// pair is the answers of both programs to one request.
type pair struct {
	request       *rls.RateLimitRequest
	theirs, ours  *rls.RateLimitResponse
	theirErr, err error
	sent, got     time.Time
}

// compare reports differences that are not declared.
func (c *comparison) compare(t testing.TB, p *pair) {
	if p.theirErr != nil || p.err != nil {
		c.compareErrors(t, p)
		return
	}
	if a, b := len(p.theirs.GetStatuses()), len(p.ours.GetStatuses()); a != b || a != len(p.request.GetDescriptors()) {
		t.Errorf("%v\n%d statuses, want %d", p.request, b, a)
		return
	}
	counters := make([]*counter, len(p.request.GetDescriptors()))
	last := map[*counter]int{} // the last status of each counter
	for i, d := range p.request.GetDescriptors() {
		if s := p.theirs.GetStatuses()[i]; s.GetCurrentLimit() != nil {
			counters[i] = c.counter(p, d, s.GetCurrentLimit())
			last[counters[i]] = i
		}
	}
	whole, distinct := true, true // the overall codes can be compared, and the metadata too
	for i := range counters {
		want := p.theirs.GetStatuses()[i]
		if k := counters[i]; k != nil {
			want = p.theirs.GetStatuses()[last[k]]
			whole = whole && k.differs == none && p.sent.After(k.unequal) && !looksAtZero(p, i, want)
			if last[k] != i && !proto.Equal(want, p.theirs.GetStatuses()[i]) {
				c.declare(equalDescriptors)
				distinct = false
			}
		}
		c.compareStatus(t, p, counters[i], i, want)
	}
	for _, k := range counters {
		if k == nil {
			continue
		}
		whole = whole && p.sent.After(k.unequal)
	}
	if whole && (p.theirs.GetOverallCode() != p.ours.GetOverallCode() || distinct && !c.equalQuotas(p)) {
		t.Errorf("%v\nDiana answers     %v\nenvoyproxy/ratelimit %v", p.request, p.ours, p.theirs)
	}
	if whole && distinct && c.original && !c.equalFields(p) {
		t.Errorf("%v\nDiana tells       %v\nenvoyproxy/ratelimit %v", p.request, p.ours.GetResponseHeadersToAdd(), p.theirs.GetResponseHeadersToAdd())
	}
}

// equalFields reports whether the fields for clients are equal. The time until reset may differ by the time between both
// answers, and under a limit of 0.
func (c *comparison) equalFields(p *pair) bool {
	a, b := p.ours.GetResponseHeadersToAdd(), p.theirs.GetResponseHeadersToAdd()
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		n, errA := strconv.ParseInt(a[i].GetValue(), 10, 64)
		m, errB := strconv.ParseInt(b[i].GetValue(), 10, 64)
		tolerance := p.got.Unix() - p.sent.Unix()
		if i < 2 {
			tolerance = 0
		}
		if errA != nil || errB != nil || a[i].GetKey() != b[i].GetKey() || max(n-m, m-n) > tolerance && (i < 2 || a[0].GetValue() != "0") {
			return false
		}
	}
	c.count(&c.fields)
	return true
}

// equalQuotas reports whether the metadata of both answers say the same about quota_mode.
func (c *comparison) equalQuotas(p *pair) bool {
	theirs, ours := p.theirs.GetDynamicMetadata().GetFields(), p.ours.GetDynamicMetadata().GetFields()
	if !c.original {
		c.declare(echo) // the domain and the descriptors
	} else if slices.ContainsFunc(p.request.GetDescriptors(), multiplied) {
		c.declare(multiplier) // their protobuf does not know the field, so it has another text in the descriptors
	} else if steady(theirs["descriptors"]) != steady(ours["descriptors"]) || !proto.Equal(theirs["domain"], ours["domain"]) ||
		!proto.Equal(theirs["hitsAddend"], ours["hitsAddend"]) || len(theirs) != len(ours) {
		return false
	}
	if len(ours) > 0 && ours["quotaModeViolations"] != nil {
		c.count(&c.violations)
	}
	equal := func(name string, missing *structpb.Value) bool {
		a, b := theirs[name], ours[name]
		if b == nil {
			b = missing
		}
		return proto.Equal(a, b)
	}
	return equal("quotaModeEnabled", structpb.NewBoolValue(false)) && equal("quotaModeViolations", nil)
}

func multiplied(d *common.RateLimitDescriptor) bool { return d.GetLimit().GetUnitMultiplier() != nil }

// steady returns the text of a value without spaces, which package protobuf adds by chance.
func steady(v *structpb.Value) string {
	text, _ := protojson.Marshal(v) // a value of structpb has a text
	return strings.ReplaceAll(string(text), " ", "")
}

// counter returns the counter of a descriptor, after it has noted why it differs.
func (c *comparison) counter(p *pair, d *common.RateLimitDescriptor, limit *rls.RateLimitResponse_RateLimit) *counter {
	domain := p.request.GetDomain()
	var list []descriptors.Entry
	for _, e := range d.GetEntries() {
		list = append(list, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	owner, own := "", d.GetLimit() != nil
	if own {
		owner = fmt.Sprint("brought ", limit.GetRequestsPerUnit(), limit.GetUnit(), " ", string(descriptors.AppendKey(nil, list)))
	} else if l, key := c.tree.Find(domain, list, nil); l != nil {
		owner, list = l.Rule.Name+" "+string(key), parts(string(key))
	}
	text := domain
	for _, e := range list {
		text += "_" + e.Key + "_" + e.Value
	}
	k := c.counters[text]
	switch {
	case k == nil:
		k = &counter{owner: owner, differs: none}
		c.counters[text] = k
	case k.owner == owner || k.differs != none:
	case own || strings.HasPrefix(k.owner, "brought "):
		k.differs = brought
	default:
		k.differs = joined
	}
	if d.GetIsNegativeHits() {
		k.differs = refund
	}
	if unit := int64(descriptors.Unit(limit.GetUnit()).Duration() / time.Second); p.sent.Unix()/unit != p.got.Unix()/unit {
		k.unequal = time.Unix((p.got.Unix()/unit+1)*unit, 0)
	}
	return k
}

// parts returns the entries of which descriptors.AppendKey has made a key.
func parts(key string) (list []descriptors.Entry) {
	next := func() string {
		length, rest, _ := strings.Cut(key, ":")
		n, _ := strconv.Atoi(length)
		key = rest[n:]
		return rest[:n]
	}
	for key != "" {
		e := descriptors.Entry{Key: next()}
		e.Value = next()
		list = append(list, e)
	}
	return list
}

// compareStatus compares one status with that of the same counter.
func (c *comparison) compareStatus(t testing.TB, p *pair, k *counter, i int, want *rls.RateLimitResponse_DescriptorStatus) {
	got := p.ours.GetStatuses()[i]
	if k != nil && !p.sent.After(k.unequal) {
		c.count(&c.straddled)
		return
	}
	equal := got.GetCode() == want.GetCode() && got.GetLimitRemaining() == want.GetLimitRemaining() &&
		proto.Equal(got.GetCurrentLimit(), want.GetCurrentLimit())
	a, b := got.GetDurationUntilReset(), want.GetDurationUntilReset()
	tolerance := p.got.Unix() - p.sent.Unix()
	reset := (a == nil) == (b == nil) && a.GetNanos() == 0 && max(a.GetSeconds()-b.GetSeconds(), b.GetSeconds()-a.GetSeconds()) <= tolerance
	switch {
	case equal && reset:
		c.count(&c.statuses)
		if k != nil {
			c.count(&c.limited)
		}
		if k != nil && want.GetLimitRemaining() == 0 {
			c.count(&c.over)
		}
	case k != nil && k.differs != none:
		c.declare(k.differs)
	case equal && b == nil && a != nil && want.GetCode() == rls.RateLimitResponse_OK && want.GetLimitRemaining() == 0:
		c.declare(quotaReset)
	case equal && want.GetCurrentLimit().GetRequestsPerUnit() == 0 && a != nil:
		c.declare(zeroReset)
	case looksAtZero(p, i, want) && (got.GetCode() == rls.RateLimitResponse_OVER_LIMIT || c.original && a == nil): // or its quota is used up
		c.declare(zeroLooks)
	default:
		t.Errorf("%v\nstatus %d is %v\nwant        %v\nof %v\nsent %v, answered %v", p.request, i, got, want, p.theirs.GetStatuses(), p.sent, p.got)
	}
}

// looksAtZero reports whether a descriptor without hits has a limit of 0. Then envoyproxy/ratelimit answers
// OK while nothing is counted.
func looksAtZero(p *pair, i int, status *rls.RateLimitResponse_DescriptorStatus) bool {
	own := p.request.GetDescriptors()[i].GetHitsAddend()
	return own != nil && own.GetValue() == 0 && status.GetCurrentLimit() != nil && status.GetCurrentLimit().GetRequestsPerUnit() == 0
}

// compareErrors compares answers of which one at least is an error.
func (c *comparison) compareErrors(t testing.TB, p *pair) {
	invalid := status.Code(p.err) == codes.InvalidArgument
	why := status.Convert(p.err).Message()
	for d, holds := range map[difference]bool{
		errorCodes:      p.theirErr != nil && status.Convert(p.theirErr).Message() == why && status.Code(p.theirErr) == codes.Unknown,
		manyDescriptors: p.theirErr == nil && strings.Contains(why, "expected at most 1024") || strings.Contains(why, "expected at most 64"),
		largeHits:       p.theirErr == nil && strings.Contains(why, fmt.Sprint("expected at most ", math.MaxUint32)),
		multiplier:      p.theirErr == nil && strings.Contains(why, "unit_multiplier"),
	} {
		if holds && invalid {
			c.declare(d)
			c.forget(p, d)
			return
		}
	}
	t.Errorf("%v\nDiana answers     %v, %v\nenvoyproxy/ratelimit %v, %v", p.request, p.ours, p.err, p.theirs, p.theirErr)
}

// forget notes that only envoyproxy/ratelimit has counted a request.
func (c *comparison) forget(p *pair, why difference) {
	for i, s := range p.theirs.GetStatuses() {
		if s.GetCurrentLimit() != nil {
			c.counter(p, p.request.GetDescriptors()[i], s.GetCurrentLimit()).differs = why
		}
	}
}

// print logs the counts.
func (c *tally) print(t testing.TB, calls int) {
	t.Logf("%d calls: %d statuses are equal, %d of them with a limit, %d of these with nothing left", calls, c.statuses, c.limited, c.over)
	t.Logf("%d statuses were not compared, because a window had ended between the two calls", c.straddled)
	t.Logf("%d responses have equal fields for clients", c.fields)
	t.Logf("%d metadata with a violation of a quota are equal", c.violations)
	for d, n := range c.declared {
		t.Logf("declared: %6d  %s", n, differenceNames[d])
	}
}
