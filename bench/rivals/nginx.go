// SPDX-License-Identifier: MIT

package rivals

import (
	"strings"

	"github.com/diana-limiter/diana/bench/measure"
)

// nginxConfig has no limit of requests on a connection, because the other servers have none either.
const nginxConfig = `
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log /dev/null crit;
events { worker_connections 4096; }
http {
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	keepalive_requests 1000000000;
	limit_req_status 503;
	limit_req_zone $server_name zone=all:1m rate=1000000r/s;
	limit_req_zone $binary_remote_addr zone=ip:1m rate=1000000r/s;
	limit_req_zone $http_x_device_id zone=device:1m rate=1000000r/s;
	limit_req_zone $http_x_device_id zone=refused:1m rate=1r/m;
	upstream up { server UPSTREAM; keepalive 128; keepalive_requests 1000000000; }
	server {
		listen ADDRESS;
		server_name bench;
		location / {
			LOCATION
			proxy_pass http://up;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// The directives of a location. The three rules are those of Diana: one for all requests, one by address, one by
// device.
const (
	NginxPlain    = "access_log /dev/null;"
	NginxForwards = NginxPlain + " limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=device burst=100000 nodelay;"
	NginxRefuses  = "access_log off; limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=refused;"
)

// Nginx is nginx as a gateway, with directives of its location. Every location forwards, because nginx never
// limits what "return" answers. It runs as one process, which equals one worker, and ends with this program.
func Nginx(location string) measure.Command {
	return func(y *measure.Yard, address string) ([]string, error) {
		if err := measure.Needs("nginx"); err != nil {
			return nil, err
		}
		dir := y.TempDir()
		file, err := y.File("nginx.conf", strings.NewReplacer("DIR", dir, "ADDRESS", address, "LOCATION", location,
			"UPSTREAM", strings.TrimPrefix(y.Upstream, "http://")).Replace(nginxConfig))
		return []string{measure.Program("nginx"), "-c", file, "-p", dir}, err
	}
}
