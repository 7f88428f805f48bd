// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// ports returns upstreams of these names, each with a port that no server has yet.
func ports(t testing.TB, names ...string) (all []upstream, ports []string) {
	t.Helper()
	for _, name := range names {
		port := testproc.FreePort(t)
		all = append(all, upstream{name, fmt.Sprintf("127.0.0.1:%d", port)})
		ports = append(ports, strconv.Itoa(port))
	}
	return all, ports
}

// nodeServers starts express, and servers that read URLs with Node's own functions.
func nodeServers(t testing.TB, files string) []upstream {
	t.Helper()
	all, ports := ports(t, "express", "express strict", "express files", "Node URL", "Node url.parse")
	start(t, all, "node", append([]string{"--max-http-header-size=65536", "testdata/express/server.js", files}, ports...)...)
	return all
}

// debianPython is where python3-flask works, also if another Python is first on PATH.
const debianPython = "/usr/bin/python3"

// pythonServers starts Flask, and the server of files of Python's library.
func pythonServers(t testing.TB, files string) []upstream {
	t.Helper()
	all, ports := ports(t, "Flask", "Python http.server")
	start(t, all[:1], debianPython, "testdata/flask_server.py", ports[0])
	start(t, all[1:], debianPython, "-m", "http.server", "--bind", "127.0.0.1", "--protocol", "HTTP/1.1", "--directory", files, ports[1])
	return all
}

// tomcatServers starts one Tomcat with a default connector, and a connector that accepts encoded
// slashes and backslashes.
func tomcatServers(t testing.TB, files string) []upstream {
	t.Helper()
	base := t.TempDir()
	if err := os.CopyFS(base, os.DirFS("testdata/tomcat")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"logs", "temp", "webapps", "work"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all, ports := ports(t, "Tomcat", "Tomcat lenient")
	const home = "/usr/share/tomcat10"
	start(t, all, "java", "-Xmx256m", "-Dcatalina.home="+home, "-Dcatalina.base="+base, "-Djava.io.tmpdir="+filepath.Join(base, "temp"),
		"-Dstrict="+ports[0], "-Dlenient="+ports[1], "-Dfiles="+files,
		"-cp", home+"/bin/bootstrap.jar:"+home+"/bin/tomcat-juli.jar", "org.apache.catalina.startup.Bootstrap", "start")
	return all
}
