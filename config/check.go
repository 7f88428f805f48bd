// SPDX-License-Identifier: MIT

package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/diana-limiter/diana/internal/bytesize"
	"github.com/diana-limiter/diana/rule"
)

// inRange returns an error if a number does not fit its form.
func inRange(key string, n int64, f wholeForm) error {
	if n < f.least || n > f.most {
		return fmt.Errorf("%s is %d, expected %d to %d", key, n, f.least, f.most)
	}
	return nil
}

var prefixPattern = regexp.MustCompile(prefixForm.pattern)

func checkRedis(r *Redis) error {
	if r == nil {
		return nil
	}
	var errs []error
	ways := 0
	for _, given := range []bool{r.URL != "", len(r.Cluster) > 0, r.Sentinel != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		errs = append(errs, fmt.Errorf("redis has %d of URL, Cluster and Sentinel, expected one of them", ways))
	}
	if s := r.Sentinel; s != nil && (s.Master == "" || len(s.Addresses) == 0) {
		errs = append(errs, errors.New("redis.sentinel has no master or no addresses, expected both"))
	}
	if r.Timeout < timeoutForm.least || r.Timeout > timeoutForm.most {
		errs = append(errs, fmt.Errorf("redis.timeout is %v, expected %v to %v", r.Timeout, timeoutForm.least, timeoutForm.most))
	}
	if int64(r.Tags) < tagsForm.least || int64(r.Tags) > tagsForm.most {
		errs = append(errs, fmt.Errorf("redis.tags is %d, expected %d to %d", r.Tags, tagsForm.least, tagsForm.most))
	}
	if r.Remember > bytesize.Max {
		errs = append(errs, fmt.Errorf("redis.remember is %s, expected at most %s", bytesize.String(r.Remember), bytesize.String(bytesize.Max)))
	}
	if !prefixPattern.MatchString(r.Prefix) || len(r.Prefix) > prefixForm.longest {
		errs = append(errs, fmt.Errorf("redis.prefix is %q, expected at most %d visible ASCII characters without braces", r.Prefix, prefixForm.longest))
	}
	return errors.Join(errs...)
}

// encoded has the characters of a clean path as a url of a configuration has them.
var encoded = strings.NewReplacer(" ", "%20", "?", "%3F", "#", "%23")

func checkEntry(e *rule.Entry) error {
	var same rule.Pattern
	url := rule.Pattern{Method: e.URL.Method, Path: encoded.Replace(e.URL.Path)}
	if err := same.UnmarshalText([]byte(url.String())); err != nil {
		return err
	}
	var errs []error
	if same != e.URL {
		errs = append(errs, fmt.Errorf("url %q: expected the pattern in its clean form, %q", e.URL, same))
	}
	if d := e.Divert; d != nil {
		if err := checkDivert(d); err != nil {
			errs = append(errs, fmt.Errorf("url %q: %w", e.URL, err))
		}
	}
	if err := checkRefusal(e); err != nil {
		errs = append(errs, fmt.Errorf("url %q: %w", e.URL, err))
	}
	for i := range e.Rules {
		if err := checkRule(&e.Rules[i]); err != nil {
			errs = append(errs, fmt.Errorf("url %q: rule %q: %w", e.URL, e.Rules[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

func checkDivert(d *rule.Divert) error {
	ways := 0
	for _, given := range []bool{d.Body != "", d.Values != nil, d.File != "", d.Upstream != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return fmt.Errorf("divert has %d of Body, Values, File and Upstream, expected one of them", ways)
	}
	if d.Values != nil {
		return checkValues(d.Values)
	}
	if d.Upstream != nil {
		return nil
	}
	if d.Status == 204 || d.Status == 205 || d.Status == 304 {
		return fmt.Errorf("divert.status is %d, expected a status whose response has a body", d.Status)
	}
	return inRange("divert.status", int64(d.Status), divertStatus)
}

// checkValues checks what a divert puts into a body.
func checkValues(values map[string]any) error {
	if len(values) == 0 {
		return errors.New("divert.body is empty, expected at least one JSON pointer")
	}
	for pointer, v := range values {
		if !pointerForm.accepts(pointer) {
			return fmt.Errorf("divert.body has %q, expected a JSON pointer such as /model", pointer)
		}
		if other := inside(pointer, values); other != "" {
			return fmt.Errorf("divert.body has %q within %q, expected one of them", pointer, other)
		}
		switch v.(type) {
		case string, int64, bool:
		default:
			return fmt.Errorf("divert.body has a %T at %q, expected a string, an int64 or a bool", v, pointer)
		}
	}
	return nil
}

func checkRule(r *rule.Rule) error {
	var errs []error
	if r.OnError < rule.Share || r.OnError > rule.Closed {
		errs = append(errs, fmt.Errorf("on_error is %d, expected Share, Whole, Open or Closed", int(r.OnError)))
	}
	if len(r.Algorithm.Names) == 0 || r.Algorithm.New == nil {
		errs = append(errs, errors.New("the algorithm has no name or no New, expected both"))
	}
	if r.Cost.Answer != "" {
		errs = append(errs, checkAnswer(r))
	} else if r.Cost.Header == "" && (r.Cost.N < 0 || r.Cost.N > mostCost(r.Algorithm)) {
		errs = append(errs, fmt.Errorf("cost is %d, expected 1 to %d", r.Cost.N, mostCost(r.Algorithm)))
	}
	if c := &r.Cost; c.Answer == "" && (c.Reserve != "" || c.IncludeUsage || c.Reservation != nil || c.Weights != nil || c.Scale != 0 || c.After != 0) {
		errs = append(errs, errors.New("cost has a part that is for an Answer, and no Answer, expected one"))
	}
	if r.ChargeAll && len(r.Charge) > 0 {
		errs = append(errs, errors.New("charge has ChargeAll and a Charge, expected one of them"))
	}
	for _, status := range r.Charge {
		errs = append(errs, inRange("charge", int64(status), wholeForm{least: 100, most: 599}))
	}
	return errors.Join(errs...)
}
