# The documentation as a site.

SITE := $(BUILD)/site

site: python $(SITE)/venv/ready ## the documentation as a site, in build/site/html: open index.html
	$(call say,SITE,$(SITE)/html)
	$(Q)PYTHONPATH=$(B)/python $(SITE)/venv/bin/sphinx-build -q -W --keep-going -c docs/site \
		-d $(SITE)/doctrees . $(SITE)/html

$(SITE)/venv/ready: docs/site/requirements.txt
	$(call say,VENV,$(@D))
	$(Q)$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check --no-deps -r $< && touch $@

.PHONY: site
