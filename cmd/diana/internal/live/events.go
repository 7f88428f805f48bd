// SPDX-License-Identifier: MIT

package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
)

const (
	mostEvents = 50
	longText   = 500 // bytes of the text of an event
)

// Event is a line of the time line.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // start, config, redis, remote or reset
	Text string    `json:"text"`
}

// events is the time line, the newest event first. The zero value is empty.
type events struct{ list []Event }

func (e *events) add(at time.Time, kind, text string) {
	if len(text) > longText {
		text = strings.ToValidUTF8(text[:longText], "") + " ..."
	}
	e.list = append([]Event{{at.UTC(), kind, text}}, e.list[:min(len(e.list), mostEvents-1)]...)
}

// compare adds what has changed between two states.
func (e *events) compare(now time.Time, old, state *diana.Status, before, after *config.Config) {
	if before == nil {
		e.add(now, "start", fmt.Sprintf("%s, version %s", state.Config.Source, state.Config.Version))
		return
	}
	if before != after {
		text := fmt.Sprintf("%s, version %s", state.Config.Source, state.Config.Version)
		if changes := diff.Configs(before, after).String(); changes != "" {
			text += ": " + changes
		}
		e.add(now, "config", text)
	}
	if old.Degraded != state.Degraded {
		text := "Redis is out of reach: global rules are decided without it"
		if !state.Degraded {
			text = "Redis is within reach"
		}
		e.add(now, "redis", text)
	}
	if old.Gateways != state.Gateways {
		e.add(now, "redis", fmt.Sprintf("%d gateways, %d before", state.Gateways, old.Gateways))
	}
	if a, b := old.Config.Remote, state.Config.Remote; a != nil && b != nil {
		if a.Reached != b.Reached {
			e.add(now, "remote", remoteText(b))
		}
		if a.Refused != b.Refused && b.Refused != "" {
			e.add(now, "remote", "its document is not in force: "+b.Refused)
		}
	}
}

func remoteText(r *diana.RemoteStatus) string {
	if r.Reached {
		return r.URL + " is within reach"
	}
	return r.URL + " is out of reach: " + r.Error
}
