// SPDX-License-Identifier: MIT

package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/diana-limiter/diana/config"
)

// mostTimeout is the longest that a request may wait for Redis.
const mostTimeout = 10 * time.Second

// servers calls f with the prefix of the variables of each Redis.
func (s *Settings) servers() func(func(string, *server) bool) {
	return func(f func(string, *server) bool) {
		if f("REDIS_", &s.Redis) && s.PerSecond {
			f("REDIS_PERSECOND_", &s.RedisSeconds)
		}
	}
}

// sockets are the defaults of URL, by the prefix.
var sockets = map[string]string{
	"REDIS_": "/var/run/nutcracker/ratelimit.sock", "REDIS_PERSECOND_": "/var/run/nutcracker/ratelimitpersecond.sock",
}

// redis returns where limits are counted, or those per second.
func (s *Settings) redis(prefix string, of *server) (*config.Redis, error) {
	of.URL = cmp.Or(of.URL, sockets[prefix])
	r := &config.Redis{Timeout: min(of.Timeout, mostTimeout), Prefix: s.Prefix + "diana"}
	if of.Timeout == 0 { // no timeout at all
		r.Timeout = mostTimeout
	}
	err := of.reach(r)
	if err != nil {
		return nil, fmt.Errorf("%s%w", prefix, err)
	}
	if of.TLS {
		r.TLS = &config.TLS{CA: s.RedisCA, Certificate: s.RedisCert, Key: s.RedisKey}
		if s.RedisAnyHost {
			r.TLS.ServerName = config.AnyName
		}
		if _, err := r.TLS.Load(); err != nil {
			return nil, fmt.Errorf("REDIS_TLS: %w", err)
		}
	}
	c := (&config.Config{Redis: r}).Filled(config.DefaultVocabulary())
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("REDIS_*, CACHE_KEY_PREFIX: %w", err)
	}
	return c.Redis, nil
}

// reach sets how r is reached. The error begins with the name of a variable, without its prefix.
func (s *server) reach(r *config.Redis) (err error) {
	if r.Username, r.Password, err = login("AUTH", s.Auth); err != nil {
		return err
	}
	list := strings.Split(s.URL, ",")
	switch strings.ToUpper(s.Type) {
	case "SINGLE":
		r.URL, err = s.single(r)
	case "CLUSTER":
		r.Cluster, err = addresses(list)
	case "SENTINEL":
		if len(list) < 2 {
			return errors.New("URL: expected the name of the master and addresses of Sentinels, as NAME,HOST:PORT and more")
		}
		r.Sentinel = &config.Sentinel{Master: list[0]}
		if r.Sentinel.Username, r.Sentinel.Password, err = login("SENTINEL_AUTH", s.SentinelAuth); err == nil {
			r.Sentinel.Addresses, err = addresses(list[1:])
		}
	}
	return err
}

// single returns the URL of one server, which URL gives as an address or as a URL. AUTH goes before the
// password in it.
func (s *server) single(r *config.Redis) (string, error) {
	if !strings.Contains(s.URL, "://") {
		if strings.EqualFold(s.Socket, "unix") {
			if !strings.HasPrefix(s.URL, "/") {
				return "", fmt.Errorf("URL: %q, expected the path of a socket, or the socket type tcp", s.URL)
			}
			return (&url.URL{Scheme: "unix", Path: s.URL}).String(), nil
		}
		list, err := addresses([]string{s.URL})
		if err != nil {
			return "", err
		}
		return "redis://" + list[0], nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" {
		return "", errors.New("URL: expected HOST:PORT or redis://HOST:PORT") // it can have a password
	}
	if password, ok := u.User.Password(); ok && r.Password.IsZero() {
		if r.Username, r.Password, err = login("URL", u.User.Username()+":"+password); err != nil {
			return "", err
		}
	}
	u.User = nil
	return u.String(), nil
}

// login reads USER:PASSWORD, or PASSWORD.
func login(name, text string) (user string, password config.Secret, err error) {
	if text == "" {
		return "", password, nil
	}
	secret := text
	if before, after, ok := strings.Cut(text, ":"); ok {
		user, secret = before, after
	}
	if strings.HasPrefix(secret, "env:") || strings.HasPrefix(secret, "file:") {
		return "", password, fmt.Errorf("%s: found one that begins with env: or file:, expected another password", name)
	}
	if err := password.UnmarshalText([]byte(secret)); err != nil {
		return "", password, fmt.Errorf("%s: %w", name, err)
	}
	return user, password, nil
}

// addresses returns addresses without a scheme, or an error for one without a port.
func addresses(list []string) ([]string, error) {
	made := make([]string, len(list))
	for i, text := range list {
		made[i] = strings.TrimPrefix(strings.TrimSpace(text), "redis://")
		if host, port, err := net.SplitHostPort(made[i]); err != nil || host == "" || port == "" || strings.Contains(made[i], "@") {
			return nil, errors.New("URL: expected HOST:PORT of each server")
		}
	}
	return made, nil
}
