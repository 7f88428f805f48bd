// SPDX-License-Identifier: MIT

package versions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/config"
)

// API answers the routes that change the remote configuration of a gateway, and show its versions. It is safe for
// concurrent use. Its caller has checked who may do what.
type API struct {
	Words  config.Vocabulary
	Config func() *config.Config      // in force
	Local  func() ([]byte, error)     // reads the text of the local configuration
	Accept func(*config.Config) error // returns an error for a configuration that the gateway would reject
	Audit  *Audit
}

// Register adds the routes to mux.
func (a *API) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/config", a.config)
	mux.HandleFunc("GET /api/v1/schema.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(a.Words.Schema()) // a client that has disconnected needs no answer
	})
	mux.HandleFunc("GET /api/v1/versions", a.list)
	mux.HandleFunc("GET /api/v1/versions/{number}", a.show)
	mux.HandleFunc("GET /api/v1/audit", func(w http.ResponseWriter, _ *http.Request) {
		adminapi.Answer(w, map[string]any{"lines": a.Audit.Lines()})
	})
	mux.HandleFunc("POST /api/v1/push", a.push)
	mux.HandleFunc("POST /api/v1/rollback", a.rollback)
	mux.HandleFunc("POST /api/v1/exempt", a.exempt)
}

const (
	mostComment = 1000 // bytes of a comment
	mostBy      = 200  // bytes of a name
)

// who is what the bodies of all changes have.
type who struct {
	Comment string  `json:"comment"`
	Expect  *string `json:"expect"`
	By      string  `json:"by"`
}

func (b who) valid() error {
	switch {
	case b.Expect == nil:
		return errors.New(`expected "expect", the version that the change is based on`)
	case len(b.Comment) > mostComment:
		return fmt.Errorf("comment: expected at most %d bytes, found %d", mostComment, len(b.Comment))
	case len(b.By) > mostBy:
		return fmt.Errorf("by: expected at most %d bytes, found %d", mostBy, len(b.By))
	}
	return nil
}

// config shows the configuration that operators edit.
func (a *API) config(w http.ResponseWriter, r *http.Request) {
	c := a.Config()
	shown := struct {
		Text     string `json:"text"`
		Version  string `json:"version"`
		Source   string `json:"source"`
		Writable bool   `json:"writable"`
		Why      string `json:"why"`
	}{Source: c.Source}
	if c.Remote == nil {
		text, err := a.Local()
		if err != nil {
			Refuse(w, err)
			return
		}
		shown.Version = textVersion(text)
		shown.Why = "The configuration is a local file: edit it there. Only a remote configuration can be changed here."
		if parsed, err := a.Words.Parse(c.Source, text); err != nil {
			shown.Why = "The local file is not valid now, so it is not shown: it could have a secret."
		} else if parsed.WritesSecret() {
			shown.Why = "The local file has a secret that is written out, so it is not shown. Write env:NAME or file:PATH in its place."
		} else {
			shown.Text = string(text)
		}
		adminapi.Answer(w, shown)
		return
	}
	a.with(w, func(remote *Remote) error {
		d, err := remote.Get(r.Context())
		if err != nil {
			return err
		}
		shown.Text, shown.Version, shown.Source = string(d.Text), VersionOf(d), remote.Where
		if _, shown.Writable = remote.document.(swapper); !shown.Writable {
			shown.Why = "This kind of configuration centre cannot compare versions, so a change of another writer could be lost."
		}
		adminapi.Answer(w, shown)
		return nil
	})
}

func (a *API) list(w http.ResponseWriter, r *http.Request) {
	if a.Config().Remote == nil {
		adminapi.Answer(w, map[string]any{"versions": []Version{}})
		return
	}
	a.with(w, func(remote *Remote) error {
		list, err := remote.List(r.Context())
		if err != nil {
			return err
		}
		for i := range list {
			list[i].Gzip = nil
		}
		adminapi.Answer(w, map[string]any{"versions": list})
		return nil
	})
}

func (a *API) show(w http.ResponseWriter, r *http.Request) {
	a.with(w, func(remote *Remote) error {
		v, text, err := remote.Find(r.Context(), r.PathValue("number"))
		if v.Gzip = nil; err == nil {
			adminapi.Answer(w, struct {
				Version
				Text string `json:"text"`
			}{v, string(text)})
		}
		return err
	})
}

func (a *API) push(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Text *string `json:"text"`
		who
	}
	if !adminapi.Read(w, r, `{"text": "...", "expect": "VERSION"}`, adminapi.MostBody, &body) {
		return
	}
	err := body.valid()
	if body.Text == nil {
		err = errors.New(`expected "text", the new document`)
	}
	if err != nil {
		adminapi.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	a.with(w, func(remote *Remote) error {
		return a.change(w, r, remote, "push", body.who, []byte(*body.Text))
	})
}

func (a *API) rollback(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Number int `json:"number"`
		who
	}
	if !adminapi.Read(w, r, `{"number": 1, "expect": "VERSION"}`, adminapi.MostBody, &body) {
		return
	}
	if err := body.valid(); err != nil {
		adminapi.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	a.with(w, func(remote *Remote) error {
		_, text, err := remote.Find(r.Context(), strconv.Itoa(body.Number))
		if err != nil {
			return err
		}
		if body.Comment == "" {
			body.Comment = fmt.Sprintf("rollback to version %d", body.Number)
		}
		return a.change(w, r, remote, "rollback", body.who, text)
	})
}

// change validates and pushes a text, and answers with its version.
func (a *API) change(w http.ResponseWriter, r *http.Request, remote *Remote, action string, b who, text []byte) error {
	v, err := a.Change(r.Context(), remote, Change{Text: text, Expect: b.Expect, By: b.By, Comment: b.Comment})
	if err != nil {
		a.Audit.Add(r, b.By, action, "refused: "+firstLine(err))
		return err
	}
	a.Audit.Add(r, b.By, action, fmt.Sprintf("version %s, number %d: %s", v.Version, v.Number, b.Comment))
	adminapi.Answer(w, map[string]any{"version": v.Version, "number": v.Number})
	return nil
}

// Change pushes a text if it is valid.
func (a *API) Change(ctx context.Context, remote *Remote, c Change) (Version, error) {
	next, err := remote.Compose("text", c.Text)
	if err == nil {
		err = a.Accept(next)
	}
	if err != nil {
		return Version{}, invalid{err}
	}
	return remote.Push(ctx, c)
}

// with calls do with the remote configuration of the gateway, and answers with its error.
func (a *API) with(w http.ResponseWriter, do func(*Remote) error) {
	remote, err := Open(a.Words, a.Config())
	if err == nil {
		defer remote.Close()
		err = do(remote)
	}
	if err != nil {
		Refuse(w, err)
	}
}
