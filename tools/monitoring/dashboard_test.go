// SPDX-License-Identifier: MIT

package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dashboard is the part of Grafana's model that dashboard.json uses.
type dashboard struct {
	UID                  string   `json:"uid"`
	Title                string   `json:"title"`
	Description          string   `json:"description"`
	Tags                 []string `json:"tags"`
	SchemaVersion        int      `json:"schemaVersion"`
	Version              int      `json:"version"`
	Editable             bool     `json:"editable"`
	GraphTooltip         int      `json:"graphTooltip"`
	FiscalYearStartMonth int      `json:"fiscalYearStartMonth"`
	LiveNow              bool     `json:"liveNow"`
	WeekStart            string   `json:"weekStart"`
	Timezone             string   `json:"timezone"`
	Refresh              string   `json:"refresh"`
	Time                 struct {
		From string `json:"from"`
		To   string `json:"to"`
	} `json:"time"`
	Timepicker  struct{} `json:"timepicker"`
	Annotations struct {
		List []any `json:"list"`
	} `json:"annotations"`
	Links      []map[string]any `json:"links"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type variable struct {
	Name        string         `json:"name"`
	Label       string         `json:"label"`
	Type        string         `json:"type"`
	Datasource  source         `json:"datasource"`
	Definition  string         `json:"definition"`
	Query       any            `json:"query"`
	Refresh     int            `json:"refresh"`
	Regex       string         `json:"regex"`
	Sort        int            `json:"sort"`
	Multi       bool           `json:"multi"`
	IncludeAll  bool           `json:"includeAll"`
	AllValue    string         `json:"allValue"`
	Hide        int            `json:"hide"`
	SkipURLSync bool           `json:"skipUrlSync"`
	Options     []any          `json:"options"`
	Current     map[string]any `json:"current"`
}

type panel struct {
	ID          int      `json:"id"`
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Datasource  source   `json:"datasource"`
	Targets     []target `json:"targets"`
	GridPos     grid     `json:"gridPos"`
	Collapsed   bool     `json:"collapsed"`
	Panels      []panel  `json:"panels"`
	FieldConfig struct {
		Defaults struct {
			Unit       string         `json:"unit"`
			Min        *float64       `json:"min"`
			Max        *float64       `json:"max"`
			Thresholds map[string]any `json:"thresholds"`
			Custom     map[string]any `json:"custom"`
		} `json:"defaults"`
		Overrides []any `json:"overrides"`
	} `json:"fieldConfig"`
	Options map[string]any `json:"options"`
}

type grid struct{ X, Y, W, H int }

type target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant"`
	Range        bool   `json:"range"`
}

// load reads dashboard.json. A field that dashboard does not have is an error.
func load(t *testing.T) *dashboard {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := &dashboard{}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(d); err != nil {
		t.Fatal(err)
	}
	return d
}

// chosen is the data source that the user of the dashboard chooses.
var chosen = source{"prometheus", "${datasource}"}

// Each panel has a title, a description, a unit, a place of its own, and queries to the chosen data source.
func TestPanels(t *testing.T) {
	t.Parallel()
	d := load(t)
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("%s: the panel needs a title, and an id of its own instead of %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok || at[0] >= 24 {
					t.Fatalf("%s covers %s, or is beyond the edge", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource != chosen {
			t.Errorf("%s: expected a description, a unit, a query and the data source %v", p.Title, chosen)
		}
		for _, q := range p.Targets {
			if q.Datasource != chosen || q.RefID == "" || q.LegendFormat == "" || q.Instant == q.Range {
				t.Errorf("%s: expected the data source %v, a refId, a legend, and either instant or range in %+v", p.Title, chosen, q)
			}
		}
	}
}

// fill replaces the variables of Grafana by values that select everything.
var fill = strings.NewReplacer(
	"$__rate_interval", "5m", "$__range_s", "3600", "$__range", "1h",
	"$job", ".*", "$instance", ".*", "$rule", ".*")

var (
	legendLabel = regexp.MustCompile(`{{\s*(\w+)\s*}}`)
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// checkDashboard checks the queries of the panels, the labels in their legends, and the queries of the variables.
func checkDashboard(t *testing.T, m *metrics) {
	t.Helper()
	d := load(t)
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			found := m.check(t, p.Title, fill.Replace(q.Expr))
			for _, label := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
				if !found[label[1]] {
					t.Errorf("%s: the legend has the label %s, which %s does not return", p.Title, label[1], q.Expr)
				}
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		query := labelValues.FindStringSubmatch(v.Definition)
		if query == nil || v.Datasource != chosen {
			t.Errorf("variable %s: expected label_values(SERIES, LABEL) of the data source %v", v.Name, chosen)
			continue
		}
		if found := m.check(t, "variable "+v.Name, fill.Replace(query[1])); !found[query[2]] {
			t.Errorf("variable %s: no series has the label %s", v.Name, query[2])
		}
	}
}
