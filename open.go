// SPDX-License-Identifier: MIT

package diana

import (
	"github.com/diana-limiter/diana/config"
)

// Open returns a Limiter with the configuration in a file, and follows the file: a
// change takes effect within two seconds. A change that is not a valid configuration
// is logged and does nothing else. The error of a bad file is config.Errors, which
// names every mistake.
func Open(file string) (*Limiter, error) { return Options{}.Open(file) }

// Open is like the function of that name, with these options.
func (o Options) Open(file string) (*Limiter, error) {
	o = o.filled()
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(file, text, o.Vocabulary)
	if err != nil {
		return nil, err
	}
	l, err := o.New(c)
	if err != nil {
		return nil, err
	}
	l.warn(c)
	l.file = watch(file, text, l.load)
	return l, nil
}

// Reload reads the file of Open again, now. An error means that nothing has changed.
func (l *Limiter) Reload() error {
	l.mu.Lock()
	file := l.file
	l.mu.Unlock()
	if file == nil {
		return nil
	}
	return file.read()
}

// load makes the text of a configuration file the active configuration.
func (l *Limiter) load(file string, text []byte, err error) error {
	var c *config.Config
	if err == nil {
		c, err = config.Parse(file, text, l.options.Vocabulary)
	}
	if err == nil {
		err = l.use(c)
	}
	l.countReload("file", err)
	if err != nil {
		l.options.Logger.Error("configuration not changed", "source", file, "error", err)
		return err
	}
	l.options.Logger.Info("configuration changed", "source", c.Source, "version", c.Version, "rules", len(l.active.Load().set.Rules))
	l.warn(c)
	return nil
}

func (l *Limiter) warn(c *config.Config) {
	for _, w := range c.Warnings {
		l.options.Logger.Warn("configuration", "warning", w.String())
	}
	if c.Remote != nil {
		l.options.Logger.Warn("the configuration centre is not followed by this version; the local limits serve")
	}
}
