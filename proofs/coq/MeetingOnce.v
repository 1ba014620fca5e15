(* The meeting lemma when no task is done twice.

   Without recomputation two accumulators of a task can be counted together: the
   task is done once, and both must later be stored.  Three forms:

     meeting_all      every pair needed together is paid by loads and new words;
     meeting_once     every pair is paid by loads and stores alone;
     meeting_second   pairs of accumulators are paid by stores alone, which with
                      meeting_all counts such pairs twice.

   Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting.
Import ListNotations.

Section Once.
Context {X : model}.
Notation word := (word X).
Notation task := (task X).
Notation event := (event X).
Notation state := (state X).
Hypothesis outs_needed : forall t : task, incl (outs t) (needs t).

Fixpoint tasks (es : list event) : list task :=
  match es with [] => [] | Do t :: es => t :: tasks es | _ :: es => tasks es end.

Definition cost_new (e : event) : nat := match e with New _ => 1 | _ => 0 end.
Definition news := total cost_new.

(* Every pair, paid when the later of the two comes in. *)

Lemma all_run M es : forall (s : state) L,
  (forall x y, In x (fast s) -> In y (fast s) -> x <> y -> met L x y) ->
  valid M s es ->
  exists L', incl L L' /\ length L' <= length L + (M - 1) * (loads es + news es) /\
    forall t x y, In t (tasks es) -> In x (needs t) -> In y (needs t) -> x <> y -> met L' x y.
Proof.
  assert (K : forall (L : list (word * word)) w f,
    (forall x y, In x f -> In y f -> x <> y -> met L x y) ->
    forall x y, In x (w :: f) -> In y (w :: f) -> x <> y -> met (L ++ meets w f) x y).
  { intros L w f H x y [<- | Hx] [<- | Hy] Hxy; rewrite met_app; [ congruence | | | ]; auto.
    - right. now apply meets_met.
    - right. destruct (meets_met w f x Hx); [ now right | now left ]. }
  induction es as [| e es IH]; intros s L Hf V.
  - exists L. cbn. split; [ apply incl_refl | split; [ lia | contradiction ] ].
  - destruct V as (He & HM & V).
    assert (S : exists L1, incl L L1 /\ length L1 <= length L + (M - 1) * (cost_load e + cost_new e) /\
      forall x y, In x (fast (step s e)) -> In y (fast (step s e)) -> x <> y -> met L1 x y).
    { destruct s as [f c m]. destruct e as [w | w | w | w | w | t]; cbn in *.
      - unfold enter in *. destruct (in_dec (word_dec X) w f).
        + exists L. split; [ apply incl_refl | split; [ lia | exact Hf ] ].
        + exists (L ++ meets w f). split; [ apply incl_appl, incl_refl | split; [ | now apply K ] ].
          rewrite app_length. unfold meets. rewrite map_length. cbn in HM. lia.
      - exists (L ++ meets w f). split; [ apply incl_appl, incl_refl | split; [ | now apply K ] ].
        rewrite app_length. unfold meets. rewrite map_length. lia.
      - exists L. split; [ apply incl_refl | split; [ lia | exact Hf ] ].
      - exists L. split; [ apply incl_refl | split; [ lia | exact Hf ] ].
      - exists L. split; [ apply incl_refl | split; [ lia | ] ].
        intros x y Hx Hy. apply in_remove in Hx as [Hx _]. apply in_remove in Hy as [Hy _]. auto.
      - exists L. split; [ apply incl_refl | split; [ lia | exact Hf ] ]. }
    destruct S as (L1 & I1 & N1 & F1).
    destruct (IH _ L1 F1 V) as (L2 & I2 & N2 & F2).
    exists L2. split; [ now apply incl_tran with L1 | split ].
    + unfold loads, news in *. cbn. lia.
    + intros t x y Ht Hx Hy Hxy.
      assert (Ht' : e = Do t \/ In t (tasks es)).
      { destruct e; cbn in Ht; auto. destruct Ht as [-> | Ht]; auto. }
      destruct Ht' as [-> | Ht']; [ | eauto ].
      destruct He as [Hn _]. destruct s as [f c m].
      destruct (F1 x y (Hn _ Hx) (Hn _ Hy) Hxy); [ left | right ]; auto.
Qed.

Theorem meeting_all M es : valid M (init X) es ->
  exists L, length L <= (M - 1) * (loads es + news es) /\
    forall t x y, In t (tasks es) -> In x (needs t) -> In y (needs t) -> x <> y -> met L x y.
Proof.
  intros V. destruct (all_run M es (init X) []) as (L & _ & N & F); trivial.
  - cbn. contradiction.
  - exists L. auto.
Qed.

(* Pairs paid by loads and stores, or (second) by stores alone. *)
Section Payer.
Variable second : bool.
Definition counts (x y : word) : Prop := second = true -> input x = false /\ input y = false.
Definition price (e : event) : nat := if second then cost_store e else cost_load e + cost_store e.

Definition present (s : state) (t : task) (x : word) : Prop :=
  input x = true \/ In t (content s x) \/ In t (saved s x).
Definition waits (s : state) (pend : word -> list (word * word)) (t : task) (x y : word) :=
  (input x = false /\ ~ In t (saved s x)) /\ met (pend x) x y.

Record once (M : nat) (done : list task) (s : state) (L : list (word * word))
    (pend : word -> list (word * word)) : Prop := {
  o_fast : forall x y, In x (fast s) -> In y (fast s) -> x <> y -> counts x y ->
    met L x y \/ met (pend x) x y \/ met (pend y) x y;
  o_length : forall w, length (pend w) <= M - 1;
  o_input : forall w, second = false -> input w = true -> pend w = [];
  o_done : forall w t, In t (content s w) \/ In t (saved s w) -> In t done;
  o_empty : forall w, ~ In w (fast s) -> content s w = [];
  o_pairs : forall t x y, In t done -> In x (needs t) -> In y (needs t) -> x <> y ->
    counts x y -> present s t x -> present s t y ->
    met L x y \/ waits s pend t x y \/ waits s pend t y x
}.

Lemma met_swap {A} (L : list (A * A)) x y : met L x y -> met L y x.
Proof. unfold met. tauto. Qed.

Lemma once_step M done s L pend e :
  once M done s L pend -> allowed s e -> length (fast (step s e)) <= M ->
  (forall t, e = Do t -> ~ In t done) ->
  exists L' pend', once M (match e with Do t => t :: done | _ => done end) (step s e) L' pend' /\
    length L' <= length L + (M - 1) * price e.
Proof.
  intros [Of Ol Oi Od Oe Op] He HM Hd. destruct s as [f c m]; cbn in *.
  destruct e as [w | w | w | w | w | t]; cbn in *.
  - (* Load *)
    assert (Od' : forall x t, In t (upd c w (c w ++ m w) x) \/ In t (m x) -> In t done).
    { intros x t. unfold upd. destruct (word_dec X w x) as [<- | ]; [ rewrite in_app_iff | ];
        intros H; [ apply (Od w t) | apply (Od x t) ]; tauto. }
    assert (Pr : forall t x,
      present {| fast := enter w f; content := upd c w (c w ++ m w); saved := m |} t x ->
                 present {| fast := f; content := c; saved := m |} t x).
    { intros t x. unfold present. cbn. unfold upd.
      destruct (word_dec X w x) as [<- | ]; [ rewrite in_app_iff | ]; tauto. }
    unfold enter in *. destruct (in_dec (word_dec X) w f) as [Hw | Hw].
    + exists L, pend. split; [ split; cbn; auto | unfold price; destruct second; cbn; lia ].
      * intros x Hx. rewrite upd_other by congruence. auto.
      * intros t x y Ht Hx Hy Hxy Hc Px Py. apply (Op t x y); auto.
    + assert (Em : forall x, ~ In x (w :: f) -> upd c w (c w ++ m w) x = []).
      { intros x Hx. cbn in Hx. rewrite upd_other by tauto. apply Oe. tauto. }
      destruct second eqn:E2.
      * (* paid later, at the store *)
        exists L, (upd pend w (meets w f)). split; [ split; cbn; auto | unfold price; rewrite E2; cbn; lia ].
        -- intros x y [<- | Hx] [<- | Hy] Hxy Hc; [ congruence | | | ].
           ++ right; left. rewrite upd_same. now apply meets_met.
           ++ right; right. rewrite upd_same. apply met_swap. now apply meets_met.
           ++ rewrite !upd_other by congruence. auto.
        -- intros x. unfold upd. destruct (word_dec X w x); [ | auto ].
           unfold meets. rewrite map_length. cbn in HM. lia.
        -- intros x E; congruence.
        -- intros t x y Ht Hx Hy Hxy Hc Px Py.
           destruct (Op t x y Ht Hx Hy Hxy Hc (Pr _ _ Px) (Pr _ _ Py)) as [H | [[H1 H2] | [H1 H2]]].
           ++ now left.
           ++ destruct (word_dec X w x) as [<- | N].
              ** apply Pr in Px. unfold present in Px. cbn in *.
                 rewrite (Oe _ Hw) in Px. destruct (Hc E2) as [Hi _].
                 destruct Px as [Px | [[] | Px]]; [ congruence | tauto ].
              ** right; left. split; [ exact H1 | now rewrite upd_other ].
           ++ destruct (word_dec X w y) as [<- | N].
              ** apply Pr in Py. unfold present in Py. cbn in *.
                 rewrite (Oe _ Hw) in Py. destruct (Hc E2) as [_ Hi].
                 destruct Py as [Py | [[] | Py]]; [ congruence | tauto ].
              ** right; right. split; [ exact H1 | now rewrite upd_other ].
      * (* paid by the load *)
        exists (L ++ meets w f), pend. split; [ split; cbn; auto | ].
        -- intros x y [<- | Hx] [<- | Hy] Hxy Hc; rewrite met_app; [ congruence | | | ].
           ++ left; right. now apply meets_met.
           ++ left; right. apply met_swap. now apply meets_met.
           ++ destruct (Of x y Hx Hy Hxy Hc); tauto.
        -- intros t x y Ht Hx Hy Hxy Hc Px Py. rewrite met_app.
           destruct (Op t x y Ht Hx Hy Hxy Hc (Pr _ _ Px) (Pr _ _ Py)) as [H | [H | H]]; auto.
        -- unfold price. rewrite E2, app_length. unfold meets. rewrite map_length.
           cbn in *. lia.
  - (* New *)
    destruct He as [Hw Hi]. exists L, (upd pend w (meets w f)).
    split; [ split; cbn; auto | unfold price; destruct second; cbn; lia ].
    + intros x y [<- | Hx] [<- | Hy] Hxy Hc; [ congruence | | | ].
      * right; left. rewrite upd_same. now apply meets_met.
      * right; right. rewrite upd_same. apply met_swap. now apply meets_met.
      * rewrite !upd_other by congruence. auto.
    + intros x. unfold upd. destruct (word_dec X w x); [ | auto ].
      unfold meets. rewrite map_length. lia.
    + intros x E Ex. rewrite upd_other by congruence. auto.
    + intros x t. unfold upd. destruct (word_dec X w x); [ | exact (Od x t) ].
      intros [[] | H]. apply (Od x). now right.
    + intros x Hx. rewrite upd_other by tauto. apply Oe. tauto.
    + intros t x y Ht Hx Hy Hxy Hc Px Py. unfold present in Px, Py. cbn in Px, Py.
      assert (Pr : forall z, input z = true \/ In t (upd c w [] z) \/ In t (m z) ->
        present {| fast := f; content := c; saved := m |} t z /\ (w = z -> In t (m z))).
      { intros z. unfold upd, present. cbn. destruct (word_dec X w z) as [<- | N]; [ | tauto ].
        intros [H | [[] | H]]; [ congruence | tauto ]. }
      apply Pr in Px as [Px Px'], Py as [Py Py'].
      destruct (Op t x y Ht Hx Hy Hxy Hc Px Py) as [H | [[H1 H2] | [H1 H2]]]; cbn in *.
      * now left.
      * right; left. split; [ exact H1 | ]. rewrite upd_other; tauto.
      * right; right. split; [ exact H1 | ]. rewrite upd_other; tauto.
  - (* Store *)
    exists (L ++ pend w), (upd pend w []).
    split; [ split; cbn; auto | ].
    + intros x y Hx Hy Hxy Hc. rewrite met_app. unfold upd.
      destruct (Of x y Hx Hy Hxy Hc) as [H | [H | H]];
        destruct (word_dec X w x), (word_dec X w y); subst; tauto.
    + intros x. unfold upd. destruct (word_dec X w x); cbn; [ lia | auto ].
    + intros x E Ex. unfold upd. destruct (word_dec X w x); auto.
    + intros x t. unfold upd. destruct (word_dec X w x) as [<- | ];
        intros H; [ apply (Od w t) | apply (Od x t) ]; tauto.
    + intros t x y Ht Hx Hy Hxy Hc Px Py. unfold present in Px, Py. cbn in Px, Py.
      assert (Pr : forall z, input z = true \/ In t (c z) \/ In t (upd m w (c w) z) ->
        present {| fast := f; content := c; saved := m |} t z).
      { intros z. unfold upd, present. cbn. destruct (word_dec X w z); subst; tauto. }
      rewrite met_app. unfold waits, upd; cbn.
      destruct (Op t x y Ht Hx Hy Hxy Hc (Pr _ Px) (Pr _ Py)) as [H | [[H1 H2] | [H1 H2]]]; cbn in *;
        [ tauto | destruct (word_dec X w x); subst; [ tauto | tauto ] | ].
      destruct (word_dec X w y); subst; [ left; right; now apply met_swap | tauto ].
    + unfold price. rewrite app_length. specialize (Ol w). destruct second; cbn; lia.
  - (* Add *)
    exists (L ++ pend w), (upd pend w []).
    split; [ split; cbn; auto | ].
    + intros x y Hx Hy Hxy Hc. rewrite met_app. unfold upd.
      destruct (Of x y Hx Hy Hxy Hc) as [H | [H | H]];
        destruct (word_dec X w x), (word_dec X w y); subst; tauto.
    + intros x. unfold upd. destruct (word_dec X w x); cbn; [ lia | auto ].
    + intros x E Ex. unfold upd. destruct (word_dec X w x); auto.
    + intros x t. unfold upd. destruct (word_dec X w x) as [<- | ]; rewrite ?in_app_iff;
        intros H; [ apply (Od w t) | apply (Od x t) ]; tauto.
    + intros t x y Ht Hx Hy Hxy Hc Px Py. unfold present in Px, Py. cbn in Px, Py.
      assert (Pr : forall z, input z = true \/ In t (c z) \/ In t (upd m w (c w ++ m w) z) ->
        present {| fast := f; content := c; saved := m |} t z).
      { intros z. unfold upd, present. cbn. destruct (word_dec X w z); subst;
          rewrite ?in_app_iff; tauto. }
      rewrite met_app. unfold waits, upd; cbn.
      destruct (Op t x y Ht Hx Hy Hxy Hc (Pr _ Px) (Pr _ Py)) as [H | [[H1 H2] | [H1 H2]]]; cbn in *;
        [ tauto | destruct (word_dec X w x); subst; [ tauto | tauto ] | ].
      destruct (word_dec X w y); subst; [ left; right; now apply met_swap | tauto ].
    + unfold price. rewrite app_length. specialize (Ol w). destruct second; cbn; lia.
  - (* Drop *)
    exists L, pend. split; [ split; cbn; auto | unfold price; destruct second; cbn; lia ].
    + intros x y Hx Hy. apply in_remove in Hx as [Hx _]. apply in_remove in Hy as [Hy _]. auto.
    + intros x t. unfold upd. destruct (word_dec X w x); [ | exact (Od x t) ].
      intros [[] | H]. apply (Od x). now right.
    + intros x Hx. unfold upd. destruct (word_dec X w x) as [E | E]; [ reflexivity | ].
      apply Oe. intros Hf. apply Hx, in_in_remove; auto.
    + intros t x y Ht Hx Hy Hxy Hc Px Py.
      assert (Pr : forall z,
        present {| fast := remove (word_dec X) w f; content := upd c w []; saved := m |} t z ->
        present {| fast := f; content := c; saved := m |} t z).
      { intros z. unfold upd, present. cbn. destruct (word_dec X w z); cbn; tauto. }
      apply (Op t x y); auto.
  - (* Do *)
    destruct He as [Hn _]. specialize (Hd t eq_refl).
    exists L, pend. split; [ split; cbn; auto | unfold price; destruct second; cbn; lia ].
    + intros x t'. unfold absorb. destruct (in_dec (word_dec X) x (outs t)); cbn;
        intros H; [ destruct H as [[H | H] | H] | destruct H as [H | H] ]; auto;
        right; apply (Od x); auto.
    + intros x Hx. unfold absorb. destruct (in_dec (word_dec X) x (outs t)) as [Ho | Ho]; [ | auto ].
      exfalso. apply Hx, Hn, outs_needed, Ho.
    + intros t' x y Ht Hx Hy Hxy Hc Px Py.
      assert (Nt : forall z, ~ In t (m z)) by (intros z H; apply Hd, (Od z); auto).
      destruct Ht as [<- | Ht].
      * assert (Wt : forall z u, counts z u -> met (pend z) z u -> input z = false).
        { intros z u Hz H. destruct (input z) eqn:E; [ | reflexivity ].
          destruct second eqn:E2; [ destruct (Hz E2); congruence | ].
          rewrite Oi in H by trivial. now destruct H. }
        assert (Hc' : counts y x) by (intros E; destruct (Hc E); now split).
        unfold waits. cbn. destruct (Of x y) as [H | [H | H]]; auto.
        -- right; left. eauto.
        -- right; right. apply met_swap in H. eauto.
      * assert (Ne : t <> t') by congruence.
        assert (Pr : forall z, present {| fast := f; content := absorb t c; saved := m |} t' z ->
          present {| fast := f; content := c; saved := m |} t' z).
        { intros z. unfold present, absorb. cbn. destruct (in_dec (word_dec X) z (outs t)); cbn;
            intuition congruence. }
        apply (Op t' x y); auto.
Qed.

Lemma once_run M es : forall done s L pend,
  once M done s L pend -> valid M s es -> NoDup (tasks es) ->
  (forall t, In t (tasks es) -> ~ In t done) ->
  exists done' L' pend', once M done' (run s es) L' pend' /\ incl (tasks es) done' /\
    incl done done' /\ length L' <= length L + (M - 1) * total price es.
Proof.
  induction es as [| e es IH]; intros done s L pend C V N Hd.
  - exists done, L, pend. cbn. split; [ exact C | split; [ | split; [ apply incl_refl | lia ] ] ].
    intros t [].
  - destruct V as (He & HM & V).
    destruct (once_step M done s L pend e C He HM) as (L1 & p1 & C1 & N1).
    { intros t ->. apply Hd. now left. }
    destruct (IH _ _ _ _ C1 V) as (done2 & L2 & p2 & C2 & I2 & J2 & N2).
    + destruct e; cbn in N; trivial. now inversion N.
    + intros t Ht. destruct e; cbn in *; auto. inversion_clear N as [| ? ? Hn _].
      intros [<- | H]; [ auto | apply (Hd t); auto ].
    + exists done2, L2, p2. split; [ exact C2 | split; [ | split ] ].
      * destruct e; cbn; trivial. intros t' [<- | H]; [ apply J2; now left | auto ].
      * destruct e; trivial. intros t' H. apply J2. now right.
      * cbn. lia.
Qed.

Lemma meeting_paid M es : valid M (init X) es -> NoDup (tasks es) ->
  exists L, length L <= (M - 1) * total price es /\
    forall t x y, In t (tasks es) -> In x (needs t) -> In y (needs t) -> x <> y -> counts x y ->
      (input x = true \/ In t (saved (run (init X) es) x)) ->
      (input y = true \/ In t (saved (run (init X) es) y)) -> met L x y.
Proof.
  intros V N. destruct (once_run M es [] (init X) [] (fun _ => []))
    as (done & L & pend & C & I & _ & B); auto.
  - split; cbn; auto; try contradiction; try (intros; lia).
  - exists L. split; [ exact B | ].
    intros t x y Ht Hx Hy Hxy Hc Px Py.
    destruct (o_pairs _ _ _ _ _ C t x y) as [H | [[[H0 H1] H2] | [[H0 H1] H2]]]; auto;
      unfold present; try tauto; exfalso;
      [ destruct Px as [Px | Px] | destruct Py as [Py | Py] ]; congruence || tauto.
Qed.
End Payer.

Theorem meeting_once M es : valid M (init X) es -> NoDup (tasks es) ->
  exists L, length L <= (M - 1) * traffic es /\
    forall t x y, In t (tasks es) -> In x (needs t) -> In y (needs t) -> x <> y ->
      (input x = true \/ In t (saved (run (init X) es) x)) ->
      (input y = true \/ In t (saved (run (init X) es) y)) -> met L x y.
Proof.
  intros V N. destruct (meeting_paid false M es V N) as (L & HL & H).
  exists L. split; [ exact HL | ]. intros. apply (H t); trivial. discriminate.
Qed.

Theorem meeting_second M es : valid M (init X) es -> NoDup (tasks es) ->
  exists L, length L <= (M - 1) * stores es /\
    forall t x y, In t (tasks es) -> In x (needs t) -> In y (needs t) -> x <> y ->
      input x = false -> input y = false ->
      In t (saved (run (init X) es) x) -> In t (saved (run (init X) es) y) -> met L x y.
Proof.
  intros V N. destruct (meeting_paid true M es V N) as (L & HL & H).
  exists L. split; [ exact HL | ]. intros. apply (H t); auto. intros _. auto.
Qed.
End Once.
