// SPDX-License-Identifier: MIT

package compat

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// recipe is a page of docs/gateways, with the promises by which gateways differ.
type recipe struct {
	name    string
	onlyAll bool   // only make compat installs the gateway
	program string // or where only root looks
	fields  bool   // whether the answer to an allowed request has the RateLimit fields
	atFirst []int  // the statuses of the first requests while Diana is away, besides 200

	// start starts the gateway with the files of its page, after some edits.
	start func(t *testing.T, s *site, r recipe, edits []string)
	// refuse are the edits by which the gateway refuses requests while Diana is away, and refused is the
	// status that clients then see.
	refuse  []string
	refused int
}

var recipes = []recipe{
	{
		name: "nginx", program: "/usr/sbin/nginx", fields: true, start: startNginx,
		refuse:  []string{"    location / { return 204; }                             # allows every request", "    location / { return 503; }                             # refuses every request"},
		refused: 500,
	},
	{
		name: "haproxy", program: "/usr/sbin/haproxy", fields: true, start: startHAProxy,
		refuse: []string{
			"    -- else ", "    else ",
			"    http-request lua.diana", "    http-request return status 503 unless { nbsrv(diana) gt 0 }\n    http-request lua.diana",
		},
		refused: 503,
	},
	{
		name: "caddy", onlyAll: true, fields: true, start: startCaddy,
		refuse: []string{"\trespond 204", "\trespond 503"}, refused: 503,
	},
	{
		// Traefik does not repeat a question that it has sent.
		name: "traefik", onlyAll: true, atFirst: []int{502, 504}, start: startTraefik,
		refuse:  []string{"middlewares: [diana-again], service: diana}", "middlewares: [diana-again], service: diana-check}"},
		refused: 503,
	},
}

// available skips a test if its gateway is not installed. make compat installs all.
func (r recipe) available(t *testing.T) {
	t.Helper()
	if r.onlyAll && !*allServers {
		t.Skip("only make compat starts this gateway")
	}
	if _, err := exec.LookPath(r.command()); err != nil {
		t.Fatalf("%v: make deps or make compat installs it", err)
	}
}

// command returns the program of the gateway.
func (r recipe) command() string {
	if _, err := exec.LookPath(r.name); err != nil && r.program != "" {
		return r.program
	}
	return r.name
}

// run starts the gateway and waits until it answers.
func (r recipe) run(t *testing.T, s *site, args ...string) {
	t.Helper()
	log := filepath.Join(s.dir, r.name+".log")
	p, err := testproc.Start(log, r.command(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("the log of %s:\n%.4000s", r.name, text)
		}
	})
	if !testproc.Becomes(func() bool {
		conn, err := net.Dial("tcp", s.host)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}) {
		t.Fatalf("%s does not start", r.name)
	}
}

func startNginx(t *testing.T, s *site, r recipe, edits []string) {
	t.Helper()
	text := replaced(t, filesOf(t, "nginx.md", edits)["/etc/nginx/conf.d/diana.conf"],
		"server 127.0.0.1:9100", "server "+s.check, "127.0.0.1:9101", s.spare, "127.0.0.1:3000", s.app(), "listen 80;", "listen "+s.host+";")
	r.run(t, s, nginxArgs(t, s.dir, text)...)
}

// nginxArgs returns the arguments of an nginx that includes a file with this text.
func nginxArgs(t *testing.T, dir, text string) []string {
	t.Helper()
	included, main := filepath.Join(dir, "included.conf"), filepath.Join(dir, "nginx.conf")
	config := fmt.Sprintf(recipeNginx, dir, included)
	if os.Getuid() == 0 {
		config = "user root;\n" + config // the worker must reach its folders below dir
	}
	if err := errors.Join(os.WriteFile(included, []byte(text), 0o644), os.WriteFile(main, []byte(config), 0o644)); err != nil {
		t.Fatal(err)
	}
	return []string{"-c", main, "-p", dir}
}

// recipeNginx is the file that includes the one of the page.
const recipeNginx = `daemon off;
master_process off; # a worker outlives a master that is killed
error_log stderr error;
pid %[1]s/nginx.pid;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	include %[2]s;
}
`

// TestNginxAsksOnce: nginx evaluates auth_request again after an internal redirect. Diana counts the request
// once, and the client sees the fields.
func TestNginxAsksOnce(t *testing.T) {
	r, s := recipes[0], newSite(t)
	r.available(t)
	s.startDiana(t, recipeLimits)
	files := s.write(t, "index.html", "")
	r.start(t, s, r, []string{"    location = /_diana {", `
    location /api/named { try_files /none @named; }
    location @named { proxy_pass http://127.0.0.1:3000; }
    location = /api/index/ { alias ` + filepath.Dir(files) + `/; }
    location /api/index/ { alias ` + filepath.Dir(files) + `/; }
    location /api/file { root ` + filepath.Dir(files) + `; try_files /none /api/index/index.html; }
    location = /_diana {`})
	for i, path := range []string{"/api/x", "/api/named", "/api/index/", "/api/file"} {
		got := s.ask(t, "GET", path, "")
		if want := fmt.Sprintf(`"api";r=%d;`, 700-1-i); got.status != 200 || !strings.HasPrefix(got.header.Get("RateLimit"), want) {
			t.Errorf("%s gets %d with RateLimit: %s, want %s", path, got.status, got.header.Get("RateLimit"), want)
		}
	}
}

func startHAProxy(t *testing.T, s *site, r recipe, edits []string) {
	t.Helper()
	files := filesOf(t, "haproxy.md", edits)
	between := "abns@" + filepath.Base(s.dir) + s.check
	_, admin, _ := net.SplitHostPort(s.admin)
	action := s.write(t, "diana.lua", replaced(t, files["/etc/haproxy/diana.lua"], "abns@diana", between))
	text := replaced(t, files["/etc/haproxy/haproxy.cfg"],
		"/etc/haproxy/diana.lua", action, "log /dev/log local0", "log stderr format raw local0",
		"bind :80", "bind "+s.host, "127.0.0.1:3000", s.app(), "bind abns@diana", "bind "+between,
		"server diana 127.0.0.1:9100 check port 9090", "server diana "+s.check+" check port "+admin)
	r.run(t, s, "-db", "-f", s.write(t, "haproxy.cfg", text))
}

func startCaddy(t *testing.T, s *site, r recipe, edits []string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.host)
	text := replaced(t, filesOf(t, "caddy.md", edits)["/etc/caddy/Caddyfile"],
		"127.0.0.1:9100 127.0.0.1:9101 {", s.check+" "+s.spare+" {", "http://127.0.0.1:9101", "http://"+s.spare,
		"127.0.0.1:3000", s.app(), "\n:80 {", "\n:"+port+" {\n\tbind 127.0.0.1",
		"\n{\n", "\n{\n\tadmin off\n\tpersist_config off\n\tstorage file_system "+s.dir+"\n")
	r.run(t, s, "run", "--adapter", "caddyfile", "--config", s.write(t, "Caddyfile", text))
}

func startTraefik(t *testing.T, s *site, r recipe, edits []string) {
	t.Helper()
	files := filesOf(t, "traefik.md", edits)
	_, admin, _ := net.SplitHostPort(s.admin)
	dynamic := s.write(t, "dynamic.yml", replaced(t, files["/etc/traefik/diana.yml"],
		"127.0.0.1:9101", s.spare, "127.0.0.1:9100", s.check, "127.0.0.1:3000", s.app(), "port: 9090", "port: "+admin))
	static := s.write(t, "traefik.yml", "global: {checkNewVersion: false, sendAnonymousUsage: false}\n"+replaced(t, files["/etc/traefik/traefik.yml"],
		`":80"`, `"`+s.host+`"`, "127.0.0.1:9101", s.spare, "/etc/traefik/diana.yml", dynamic))
	r.run(t, s, "--configFile="+static)
}
