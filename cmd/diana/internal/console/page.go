// SPDX-License-Identifier: MIT

package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/internal/plan"
)

//go:embed page
var files embed.FS

var index = template.Must(template.New("index.html").Funcs(template.FuncMap{"actor": plan.ActorName, "rate": rate, "limit": limitText}).ParseFS(files, "page/index.html"))

// page answers with the page and its parts.
type page struct {
	access *Access
	api    http.Handler
	tags   map[string]string // the entity tag of each part
}

func newPage(access *Access, api http.Handler) *page {
	p := &page{access, api, map[string]string{}}
	_ = fs.WalkDir(files, "page", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && name != "page/index.html" {
			content, _ := files.ReadFile(name) // which is embedded
			p.tags[path.Base(name)] = fmt.Sprintf(`"%x"`, sha256.Sum256(content))
		}
		return err
	})
	return p
}

func (p *page) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", p.show)
	mux.HandleFunc("GET /console/{name}", p.part)
}

// view is what the page shows without JavaScript.
type view struct {
	Lang    string
	T       map[string]string
	Query   string
	Known   bool         // the client may read
	Failed  bool         // there is no state
	Live    live         // empty if Known is false
	Fleet   fleet        // the same, and if there is none
	Next    template.URL // the query of the next rules; "" if there are none
	Chinese bool
}

// live is the part of the answer of GET /api/v1/live that the page shows without JavaScript.
type live struct {
	At      time.Time
	Gateway struct {
		Version, Source string
		ConfigVersion   string `json:"config_version"`
		Degraded        bool
		Gateways        int
	}
	Rules []struct {
		Name, URL, Mode  string
		Limit            int64
		UnitSeconds      float64 `json:"unit_seconds"`
		AllowedPerSecond float64 `json:"allowed_per_second"`
		RefusedPerSecond float64 `json:"refused_per_second"`
		Refused          int64
	}
	RulesTotal int `json:"rules_total"`
	TopRefused []struct {
		Rule, Actor string
		Recent      int64
		RecentExact bool    `json:"recent_exact"`
		PerSecond   float64 `json:"per_second"`
	} `json:"top_refused"`
}

// fleet is the part of the answer of GET /api/v1/fleet that the page shows without JavaScript.
type fleet struct {
	Available bool
	Reason    string
	Minutes   []struct {
		At               time.Time
		Allowed, Refused int64
		Gateways         int
	}
}

// Sum returns what was allowed and refused since the first minute.
func (f fleet) Sum(text string) string {
	if len(f.Minutes) == 0 {
		return ""
	}
	var allowed, refused int64
	for _, m := range f.Minutes {
		allowed, refused = allowed+m.Allowed, refused+m.Refused
	}
	return strings.NewReplacer("{allowed}", fmt.Sprint(allowed), "{refused}", fmt.Sprint(refused), "{at}", f.Minutes[0].At.Format(time.DateTime+" MST")).Replace(text)
}

// Of returns whose minutes they are, by the text for the fleet or that for this gateway alone. Some gateways have
// not reported the present minute yet, so it counts those of the minute before too.
func (f fleet) Of(all, alone string) string {
	gateways := 0
	for _, m := range f.Minutes[max(len(f.Minutes)-2, 0):] {
		gateways = max(gateways, m.Gateways)
	}
	if f.Available {
		return strings.ReplaceAll(all, "{n}", fmt.Sprint(gateways))
	}
	return strings.ReplaceAll(alone, "{why}", f.Reason)
}

// rulesShown is how many rules the page shows at once.
const rulesShown = 50

// show answers with the page.
func (p *page) show(w http.ResponseWriter, r *http.Request) {
	lang := languageOf(r)
	v := view{Lang: lang, T: words[lang], Chinese: lang == "zh", Query: r.URL.Query().Get("q"), Known: p.access.MayRead(r)}
	if v.Known {
		v.Failed = !p.load(r, &v)
	}
	var out bytes.Buffer
	if err := index.Execute(&out, v); err != nil {
		p.access.options.Logger.Error("page", "error", err)
		adminapi.Problem(w, http.StatusInternalServerError, "The page cannot be shown. The gateway's log says why.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Language", map[string]string{"en": "en", "zh": "zh-CN"}[lang])
	w.Header().Set("Vary", "Accept-Language, Cookie")
	_, _ = out.WriteTo(w)
}

// load asks the API for the state that the page shows. It reports whether there was one.
func (p *page) load(r *http.Request, v *view) bool {
	offset := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("offset"), &offset) // 0 if it is no number
	query := url.Values{"q": {v.Query}, "offset": {fmt.Sprint(max(offset, 0))}, "rules": {fmt.Sprint(rulesShown)}}
	if !p.ask(r, "/api/v1/live?"+query.Encode(), &v.Live) {
		return false
	}
	p.ask(r, "/api/v1/fleet", &v.Fleet)
	if next := max(offset, 0) + rulesShown; len(v.Live.Rules) == rulesShown && next < v.Live.RulesTotal {
		v.Next = template.URL(url.Values{"q": {v.Query}, "offset": {fmt.Sprint(next)}, "lang": {v.Lang}}.Encode()) //nolint:gosec // Encode escapes the values
	}
	return true
}

// ask asks the API, and reports whether it has answered.
func (p *page) ask(r *http.Request, target string, answer any) bool {
	asked, err := http.NewRequestWithContext(r.Context(), http.MethodGet, target, nil)
	if err != nil {
		return false
	}
	var got response
	p.api.ServeHTTP(&got, asked)
	return got.status <= http.StatusOK && json.Unmarshal(got.body.Bytes(), answer) == nil
}

// response keeps an answer of the API.
type response struct {
	header http.Header
	status int // 0: 200
	body   bytes.Buffer
}

func (r *response) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *response) WriteHeader(status int) { r.status = status }

func (r *response) Write(b []byte) (int, error) { return r.body.Write(b) }

// part answers with a part of the page: a script, the style sheet or the words.
func (p *page) part(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	tag, ok := p.tags[name]
	if !ok {
		adminapi.Problem(w, http.StatusNotFound, "The console has no such part.")
		return
	}
	content, _ := files.ReadFile("page/" + name) // which is embedded
	w.Header().Set("Cache-Control", "no-cache")  // a browser keeps it, and asks whether it is still the same
	w.Header().Set("ETag", tag)
	w.Header().Set("Content-Type", map[string]string{
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
		".json": "application/json", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
	}[path.Ext(name)])
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// rate formats a number of requests a second.
func rate(n float64) string {
	if n != 0 && n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// limitText formats the limit of a rule: "100 / 60 s".
func limitText(n int64, seconds float64) string {
	if seconds == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d / %g s", n, seconds)
}
