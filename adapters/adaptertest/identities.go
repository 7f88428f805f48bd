// SPDX-License-Identifier: MIT

package adaptertest

// identityCases are about the actor of a request.
func identityCases() []testCase {
	const byAccount = "{url: /, rules: [{actor: account, unit: hour, rpu: 1}]}"
	distinct := func(fields ...[]string) func(*session) {
		return func(s *session) {
			for _, f := range fields {
				s.want(200, "/hello", f...)
			}
			for _, f := range fields {
				s.want(503, "/hello", f...)
			}
		}
	}
	return []testCase{
		{"account of a field", byAccount, Setup{}, distinct(nil, []string{"X-Account-Id", "ann"}, []string{"X-Account-Id", "bob"})},
		{"actor header", "{url: /, rules: [{actor: 'header:X-Key', unit: hour, rpu: 1}]}", Setup{}, distinct([]string{"X-Key", "a"}, []string{"x-key", "b"})},
		{"actor cookie", "{url: /, rules: [{actor: 'cookie:session', unit: hour, rpu: 1}]}", Setup{},
			distinct([]string{"Cookie", "x=1; session=a"}, []string{"Cookie", "session=b; x=1"})},
		{"actor query", "{url: /, rules: [{actor: 'query:key', unit: hour, rpu: 1}]}", Setup{}, func(s *session) {
			s.want(200, "/hello?key=a")
			s.want(200, "/hello?x=1&key=b")
			s.want(503, "/hello?key=a&x=2")
		}},
		{"actor host", "{url: /, rules: [{actor: host, unit: hour, rpu: 1}]}", Setup{}, func(s *session) {
			s.want(200, "/hello")
			s.want(503, "/hello")
			if _, _, a := s.dial("/hello"); a.StatusCode != 200 { // its host is x
				s.Errorf("another host: %d", a.StatusCode)
			}
		}},
		{"address", "{url: /, rules: [{actor: ip, unit: hour, rpu: 1}]}", Setup{}, func(s *session) {
			s.want(200, "/hello", "X-Forwarded-For", "192.0.2.1")
			s.want(503, "/hello", "X-Forwarded-For", "192.0.2.2")
		}},
		{"address behind a proxy", "identity: {trusted_proxies: [127.0.0.0/8]}\nlimits: [{url: /, rules: [{actor: ip, unit: hour, rpu: 1}]}]", Setup{},
			distinct([]string{"X-Forwarded-For", "192.0.2.1"}, []string{"X-Forwarded-For", "192.0.2.2"})},
		{"method", "{url: POST /hello, rules: [{unit: hour, rpu: 1}]}", Setup{}, func(s *session) {
			s.want(200, "/hello")
			s.want(200, "/hello", "X-HTTP-Method-Override", "POST")
			s.want(503, "/hello", "X-HTTP-Method-Override", "POST")
			s.want(200, "/hello")
		}},
		{"API key", "identity: {required: any, keys: {file: KEYS}}\nlimits: [{url: /, rules: [{actor: 'key:account', unit: hour, rpu: 1}]}]", Setup{}, func(s *session) {
			s.want(401, "/hello")
			s.want(401, "/hello", "X-Api-Key", "guessed")
			s.want(200, "/hello", "X-Api-Key", knownKey)
			s.want(503, "/hello", "X-Api-Key", knownKey)
		}},
		{"actor of the framework", byAccount, Setup{Actor: true}, func(s *session) {
			s.want(200, "/hello", "X-User", "ann")
			s.want(503, "/hello", "X-User", "ann", "X-Account-Id", "other")
			s.want(200, "/hello", "X-User", "bob", "X-Account-Id", "ann")
			s.want(200, "/hello", "X-Account-Id", "cid") // no user: the field counts
			s.want(200, "/hello", "X-User", "nobody", "X-Account-Id", "dan")
			s.want(503, "/hello", "X-User", "nobody", "X-Account-Id", "eve") // by the address, as is dan
		}},
	}
}
